//! Commands that connect Gmail mailboxes, with a refresh token or by the domain's own right.

use std::process::Stdio;

use ::sim::google::READONLY;
use serde_json::Value;
use store::failpoint::{Effect, VARIABLE};

use super::site::GoogleSite;
use crate::http::{ask, serve_as};
use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::processes::{RunningProcess, wait_until};

const ANN: &str = GoogleSite::ANN;
const BOB: &str = GoogleSite::BOB;

fn run(place: &TestInstallation, google: &GoogleSite, more: &[(&str, &str)], args: &[&str]) -> CommandOutput {
    let mut command = place.command(PROGRAM, args);
    command.envs(google.settings()).envs(more.iter().copied());
    CommandOutput::of(&mut command)
}

fn add(address: &str) -> Vec<&str> {
    vec!["mailbox", "add", "gmail", "--tenant", "acme", "--address", address, "--backfill", "all"]
}

#[test]
fn refresh_token_is_checked_before_it_is_stored() {
    on_each_database(|place| {
        let google = GoogleSite::start();
        place.ok(&["tenant", "create", "acme"]);
        let token = google.world.grant(ANN).unwrap().refresh_token.unwrap();
        let good = place.write("token", &token);
        let bad = place.write("bad", "1//made-up");
        let with = |file: &str, more: &[(&str, &str)]| {
            run(place, &google, more, &[&add(ANN)[..], &["--refresh-token-file", file]].concat())
        };

        with(&bad, &[]).assert_refused(1, &["cannot open ann@gmail.test", "invalid_grant"]);
        let wrong_secret = ("MAILROOM_PROVIDERS__GOOGLE__CLIENT_SECRET", "other");
        with(&good, &[wrong_secret]).assert_refused(1, &["invalid_client", "providers.google.client_id"]);
        let mut without = place.command(PROGRAM, &[&add(ANN)[..], &["--refresh-token-file", &good]].concat());
        CommandOutput::of(&mut without).assert_refused(2, &["providers.google.client_id"]);
        run(place, &google, &[], &[&add(BOB)[..], &["--refresh-token-file", &good]].concat())
            .assert_refused(1, &["cannot open bob@gmail.test", "another mailbox"]);
        assert_eq!(place.select("select address from mailboxes"), Vec::<String>::new());

        let added = with(&good, &[]);
        assert_eq!(added.code, Some(0), "{added}");
        let synced = run(place, &google, &[], &["mailbox", "sync", ANN, "--tenant", "acme", "--wait"]);
        assert_eq!(synced.code, Some(0), "{synced}");
        assert_eq!(place.emails("acme").len(), 5);
        assert_eq!(place.select("select kind from secrets order by kind"), ["access_token", "refresh_token"]);
        google.assert_no_violations();
    });
}

#[test]
fn service_account_opens_mailboxes_of_its_domain() {
    on_each_database(|place| {
        let google = GoogleSite::start();
        place.ok(&["tenant", "create", "acme"]);
        let file = place.write("account.json", google.world.service_account_key().to_string());
        let account = ("MAILROOM_PROVIDERS__GOOGLE__SERVICE_ACCOUNT_FILE", &*file);
        let app_only = |more: &[(&str, &str)]| run(place, &google, more, &[&add(ANN)[..], &["--app-only"]].concat());

        app_only(&[]).assert_refused(2, &["providers.google.service_account_file"]);
        let other = place.write("client.json", r#"{"web": {"client_id": "x"}}"#);
        app_only(&[("MAILROOM_PROVIDERS__GOOGLE__SERVICE_ACCOUNT_FILE", &*other)])
            .assert_refused(2, &["client.json", "is the file of an OAuth client"]);
        google.world.set_delegated_scopes(Some(vec!["https://www.googleapis.com/auth/calendar".to_owned()]));
        app_only(&[account]).assert_refused(1, &["unauthorized_client", "domain-wide delegation"]);

        google.world.set_delegated_scopes(Some(vec![READONLY.to_owned()]));
        let added = app_only(&[account]);
        assert_eq!(added.code, Some(0), "{added}");
        let synced = run(place, &google, &[account], &["mailbox", "sync", ANN, "--tenant", "acme", "--wait"]);
        assert_eq!(synced.code, Some(0), "{synced}");
        assert_eq!(place.emails("acme").len(), 5);
        assert_eq!(place.select("select kind from secrets"), ["access_token"]);
        google.assert_no_violations();
    });
}

/// By a link that needs no key.
#[test]
fn connect_command_prints_a_link_to_the_consent() {
    on_each_database(|place| {
        let google = GoogleSite::start();
        place.ok(&["tenant", "create", "acme"]);
        let token = place.write("token", google.world.grant(ANN).unwrap().refresh_token.unwrap());
        let added = run(place, &google, &[], &[&add(ANN)[..], &["--refresh-token-file", &token]].concat());
        assert_eq!(added.code, Some(0), "{added}");
        let sync = ["mailbox", "sync", ANN, "--tenant", "acme", "--wait"];
        assert_eq!(run(place, &google, &[], &sync).code, Some(0));
        google.world.revoke_tokens(ANN);
        run(place, &google, &[], &sync);
        assert_eq!(place.select("select state from mailboxes"), ["needs_reauth"]);
        let shown = place.ok(&["mailbox", "show", ANN, "--tenant", "acme"]).text();
        assert!(shown.contains("invalid_grant") && shown.contains("mailroom mailbox connect gmail"), "{shown}");

        let settings = google.settings();
        let variables: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        let (_server, address) = serve_as(place, "web", &variables);
        let public_url = format!("http://{address}");
        let connect = ["mailbox", "connect", "gmail", "--tenant", "acme", "--address", ANN, "--json"];
        let link = run(place, &google, &[("MAILROOM_SERVER__PUBLIC_URL", &public_url)], &connect).objects().remove(0);
        let path = link["url"].as_str().unwrap().strip_prefix(&public_url).unwrap().to_owned();
        let redirect = ask(address, "GET", &path, &[]);
        assert_eq!(redirect.status, 302, "{redirect:?}");
        let consent = format!("{}/o/oauth2/v2/auth?", google.url());
        assert!(redirect.headers["location"].starts_with(&consent), "{redirect:?}");
    });
}

#[test]
fn process_that_dies_while_refreshing_loses_nothing() {
    on_each_database(|place| {
        let google = GoogleSite::start();
        place.ok(&["tenant", "create", "acme"]);
        let token = place.write("token", google.world.grant(ANN).unwrap().refresh_token.unwrap());
        let added = run(place, &google, &[], &[&add(ANN)[..], &["--refresh-token-file", &token]].concat());
        assert_eq!(added.code, Some(0), "{added}");
        let serve = |failpoints: &str| {
            let mut command = place.command(PROGRAM, &["serve", "--roles", "worker,scheduler"]);
            command.envs(google.settings()).env(VARIABLE, failpoints);
            command.env("MAILROOM_SYNC__INTERVAL", "1s").env("MAILROOM_SYNC__SELDOM_INTERVAL", "1s");
            command.env("MAILROOM_SYNC__LEASE", "1s").env("MAILROOM_JOBS__LEASE", "1s");
            RunningProcess::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
        };

        for effect in Effect::TOKENS {
            for moment in ["before", "after"] {
                google.world.expire_access_tokens(None);
                place.sql("delete from secrets where kind = 'access_token'");
                let mut dying = serve(&format!("{moment}:{}=crash", effect.name()));
                wait_until("it dies", || dying.has_ended());
                let server = serve("");
                let looked = || place.select("select coalesce(cast(last_sync_at as text), '') from sync_states");
                let before = looked();
                wait_until("it is looked at again", || is_up_to_date(place) && looked() != before);
                assert_eq!(server.kill().code, None);
            }
        }
        assert_eq!(place.emails("acme").len(), 5);
        assert_eq!(place.select("select state from mailboxes"), ["active"]);
        let whole = run(place, &google, &[], &["verify", "--deep"]);
        assert_eq!(whole.code, Some(0), "{whole}");
    });
}

/// There is a token, and the mailbox is up to date.
fn is_up_to_date(place: &TestInstallation) -> bool {
    let one = |sql: &str| place.select(sql).len() == 1;
    one("select kind from secrets where kind = 'access_token'")
        && one("select status from sync_states where status = 'idle' and last_sync_at is not null")
        && place.emails("acme").len() == 5
}

#[test]
fn doctor_reports_the_google_setup() {
    let (place, google) = (TestInstallation::sqlite(), GoogleSite::start());

    let told = run(&place, &google, &[], &["doctor", "--json"]).objects();
    let finding = |told: &[Value]| told.iter().find(|finding| finding["check"] == "google").unwrap().clone();
    assert!(finding(&told)["detail"].as_str().unwrap().starts_with("an OAuth client"), "{told:?}");
    let topic = ("MAILROOM_PROVIDERS__GOOGLE__PUBSUB_TOPIC", "projects/p/topics/t");
    let told = run(&place, &google, &[topic], &["doctor", "--json"]);
    assert_eq!(told.code, Some(1));
    assert!(finding(&told.objects())["detail"].as_str().unwrap().contains("push_service_account"));
}
