//! URLs under which an attachment can be fetched without a key.

use std::time::Duration;

use domain::Sha256;
use serde_json::Value;
use testkit::http::{HttpOptions, InProcessServer, request};
use testkit::on_each_app;

use crate::two_tenants::{TwoTenants, text};

fn path_of(attachment: &Value) -> String {
    format!("/v1/attachments/{}", text(&attachment["id"]))
}

/// The path on this server.
fn local(signed: &Value) -> String {
    format!("/v1/{}", text(&signed["url"]).split_once("/v1/").unwrap().1)
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_url_opens_one_attachment_for_a_while() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        // Another process, so to speak, with the same database, key and files.
        let other = testkit::app::engine(&app.db.second_store(), app.folder.path());
        let other = InProcessServer::start(&other, &HttpOptions::default());
        let emails = two.acme_emails().await;
        let attachments: Vec<&Value> =
            emails.iter().flat_map(|email| email["attachments"].as_array().unwrap()).collect();
        let (first, second) = (attachments[0], attachments[1]);

        let signed = two.get(&format!("{}/url", path_of(first)), &two.acme_reader).await.json();
        assert!(text(&signed["expires_at"]).ends_with('Z'), "{signed}");
        let url = local(&signed);
        let bytes = other.send(request("GET", &url, None, None)).await;
        assert_eq!(Sha256::of(&bytes.expect(200).body).hex(), text(&first["sha256"]));
        assert!(bytes.header("content-disposition").starts_with("attachment"));
        assert!(bytes.find_header("ratelimit").is_some(), "it counts for the tenant");

        let signature = url.rsplit_once('=').unwrap().1;
        let expires: i64 = url.split("expires=").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
        for altered in [
            url.replace(&path_of(first), &path_of(second)),
            url.replace(&format!("expires={expires}"), &format!("expires={}", expires + 1)),
            url.replace(signature, &signature.chars().rev().collect::<String>()),
            url.replace(&format!("&signature={signature}"), "&signature="),
            url.replace("tenant=", "tenant=018f0000-0000-7000-8000-000000000000&x="),
        ] {
            app.request("GET", &altered, None, None).await.assert_problem(403, "altered");
        }
        let bare = url.split('?').next().unwrap();
        app.request("GET", bare, None, None).await.assert_problem(401, "Authorization");
        let long = format!("{}/url?expires_in=3601", path_of(first));
        two.get(&long, &two.acme_reader).await.assert_problem(422, "expires_in");
        let short = format!("{}/url?expires_in=1", path_of(first));
        let short = local(&two.get(&short, &two.acme_reader).await.json());
        app.clock.advance(Duration::from_secs(2));
        app.request("GET", &short, None, None).await.assert_problem(403, "expired");

        app.db.run("update emails set deleted_at = '2026-01-01T00:00:00Z'").await;
        app.request("GET", &url, None, None).await.assert_problem(404, "attachment");
        two.get(&format!("{}/url", path_of(first)), &two.acme_reader).await.assert_problem(404, "attachment");
    })
    .await;
}
