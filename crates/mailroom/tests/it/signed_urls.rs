//! URLs under which an attachment can be fetched without a key.

use std::process::Stdio;

use domain::Sha256;

use crate::http::{ask, serve, serve_with};
use crate::mail;
use crate::place::{PROGRAM, Place, on_each_database};
use crate::processes::{Running, wait_until};

#[test]
fn a_signed_url_opens_one_attachment_for_a_while() {
    on_each_database(|place| {
        let mbox = place.write("a.mbox", mail::mbox(1, 30));
        place.import(&mbox);
        let made = place.object(&["key", "create", "--tenant", "acme", "--name", "test", "--scopes", "read"]);
        let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
        // Two processes believe each other; an embedded database has one.
        let (server, address) = serve(place);
        let (_second, other) = if place.is_sqlite() { (server, address) } else { serve_with(place, &[]) };
        let get = |path: &str| ask(address, "GET", path, &[("Authorization", &bearer)]);
        let attachments: Vec<serde_json::Value> =
            place.emails("acme").iter().flat_map(|email| email["attachments"].as_array().unwrap().clone()).collect();
        let [one, two] = &attachments[..2] else { panic!("{attachments:?}") };
        let path = |of: &serde_json::Value| format!("/v1/attachments/{}", of["id"].as_str().unwrap());

        let signed = get(&format!("{}/url", path(one))).json();
        let url = signed["url"].as_str().unwrap();
        assert!(signed["expires_at"].as_str().unwrap().ends_with('Z'), "{signed}");
        let local = format!("/v1/{}", url.split_once("/v1/").unwrap().1);
        let bytes = ask(other, "GET", &local, &[]);
        assert_eq!((bytes.status, Sha256::of(&bytes.body).hex().as_str()), (200, one["sha256"].as_str().unwrap()));
        assert!(bytes.headers["content-disposition"].starts_with("attachment"));
        assert!(bytes.headers.contains_key("ratelimit"), "it is the tenant's");

        let signature = local.rsplit_once('=').unwrap().1;
        let expires: i64 = local.split("expires=").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
        for altered in [
            local.replace(&path(one), &path(two)),
            local.replace(&format!("expires={expires}"), &format!("expires={}", expires + 1)),
            local.replace(signature, &signature.chars().rev().collect::<String>()),
            local.replace(&format!("&signature={signature}"), "&signature="),
            local.replace("tenant=", "tenant=018f0000-0000-7000-8000-000000000000&x="),
        ] {
            ask(address, "GET", &altered, &[]).assert_problem(403, "altered");
        }
        ask(address, "GET", local.split('?').next().unwrap(), &[]).assert_problem(401, "Authorization");
        get(&format!("{}/url?expires_in=3601", path(one))).assert_problem(422, "expires_in");
        let short = get(&format!("{}/url?expires_in=1", path(one))).json();
        let short = format!("/v1/{}", short["url"].as_str().unwrap().split_once("/v1/").unwrap().1);
        wait_until("it has expired", || ask(address, "GET", &short, &[]).status != 200);
        ask(address, "GET", &short, &[]).assert_problem(403, "expired");

        place.sql("update emails set deleted_at = '2026-01-01T00:00:00Z'");
        ask(address, "GET", &local, &[]).assert_problem(404, "attachment");
        get(&format!("{}/url", path(one))).assert_problem(404, "attachment");
    });
}

#[test]
fn a_key_file_that_is_another_databases_is_not_announced_as_ours() {
    let place = Place::sqlite();
    let told = |place: &Place| {
        let mut command = place.command(PROGRAM, &["serve"]);
        let port = crate::servers::closed_port();
        command
            .env("MAILROOM_SERVER__LISTEN", format!("127.0.0.1:{port}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let server = Running::spawn(&mut command);
        wait_until("it answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        server.terminate();
        server.finish()
    };
    told(&place).assert_tells("The operator's key is in");
    std::fs::write(place.data_dir().join("admin.key"), "mr_operator_another\n").unwrap();
    let other = told(&place);
    other.assert_tells("is not the operator's key of this database");
    assert!(!other.stderr.contains("curl"), "{other}");
}
