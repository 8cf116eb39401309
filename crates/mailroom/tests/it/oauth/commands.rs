//! By commands and by the API, with a refresh token or by the domain's own right.

use std::process::Stdio;

use ::sim::google::READONLY;
use serde_json::{Value, json};
use store::failpoint::{Effect, VARIABLE};

use super::scene::Scene;
use super::site::{Google, Site};
use crate::place::{Done, PROGRAM, Place, on_each_database};
use crate::processes::{Running, wait_until};

const ANN: &str = Google::ANN;
const BOB: &str = Google::BOB;

fn run(place: &Place, google: &Google, more: &[(&str, &str)], args: &[&str]) -> Done {
    let mut command = place.command(PROGRAM, args);
    command.envs(google.settings()).envs(more.iter().copied());
    Done::of(&mut command)
}

fn add(address: &str) -> Vec<&str> {
    vec!["mailbox", "add", "gmail", "--tenant", "acme", "--address", address, "--backfill", "all"]
}

#[test]
fn a_refresh_token_is_tried_out_before_it_is_kept() {
    on_each_database(|place| {
        let google = Google::start();
        place.ok(&["tenant", "create", "acme"]);
        let token = google.world.grant(ANN).unwrap().refresh_token.unwrap();
        let good = place.write("token", &token);
        let bad = place.write("bad", "1//made-up");
        let with = |file: &str, more: &[(&str, &str)]| {
            run(place, &google, more, &[&add(ANN)[..], &["--refresh-token-file", file]].concat())
        };

        with(&bad, &[]).assert_refused(1, &["cannot use ann@gmail.test", "invalid_grant"]);
        let wrong_secret = ("MAILROOM_PROVIDERS__GOOGLE__CLIENT_SECRET", "other");
        with(&good, &[wrong_secret]).assert_refused(1, &["invalid_client", "providers.google.client_id"]);
        let mut without = place.command(PROGRAM, &[&add(ANN)[..], &["--refresh-token-file", &good]].concat());
        Done::of(&mut without).assert_refused(2, &["providers.google.client_id"]);
        run(place, &google, &[], &[&add(BOB)[..], &["--refresh-token-file", &good]].concat())
            .assert_refused(1, &["cannot use bob@gmail.test", "another mailbox"]);
        assert_eq!(place.select("select address from mailboxes"), Vec::<String>::new());

        let added = with(&good, &[]);
        assert_eq!(added.code, Some(0), "{added}");
        let synced = run(place, &google, &[], &["mailbox", "sync", ANN, "--tenant", "acme", "--wait"]);
        assert_eq!(synced.code, Some(0), "{synced}");
        assert_eq!(place.emails("acme").len(), 5);
        assert_eq!(place.select("select kind from secrets order by kind"), ["access_token", "refresh_token"]);
        google.assert_well_asked();
    });
}

#[test]
fn a_domain_lets_our_service_account_in() {
    on_each_database(|place| {
        let google = Google::start();
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
        google.assert_well_asked();
    });
}

#[test]
fn the_api_takes_a_refresh_token_and_another_in_its_place() {
    on_each_database(|place| {
        let scene = Scene::<Google>::start(place);
        let world = &scene.site.world;
        let token = || world.grant(ANN).unwrap().refresh_token.unwrap();
        let create = |body: Value| scene.tell("POST", "/v1/mailboxes", &scene.acme, &body);
        let base = json!({"address": ANN, "provider": "gmail", "backfill": "all"});
        let with = |key: &str, value: Value| {
            let mut body = base.clone();
            body[key] = value;
            body
        };

        create(base.clone()).assert_problem(422, "refresh_token");
        create(with("host", json!("imap.gmail.com"))).assert_problem(422, "refresh_token");
        let mut both = with("app_only", json!(true));
        both["refresh_token"] = json!("x");
        create(both).assert_problem(422, "app_only");
        create(with("app_only", json!(true))).assert_problem(403, "operator");
        let made = create(with("refresh_token", json!(token())));
        assert_eq!(made.status, 201, "{made:?}");
        assert!(!String::from_utf8_lossy(&made.body).contains("1//"));
        let id = made.json()["id"].as_str().unwrap().to_owned();
        wait_until("its mail is here", || place.emails("acme").len() == 5);

        world.revoke_tokens(ANN);
        wait_until("it is refused", || scene.state(ANN) == "needs_reauth");
        let path = format!("/v1/mailboxes/{id}");
        scene.tell("PATCH", &path, &scene.acme, &json!({"password": "x"})).assert_problem(422, "password");
        let changed = scene.tell("PATCH", &path, &scene.acme, &json!({"refresh_token": token()}));
        assert_eq!((changed.status, &changed.json()["state"]), (200, &json!("connecting")), "{changed:?}");
        wait_until("it works again", || {
            let health = scene.get(&format!("{path}/health"), &scene.acme).json();
            health["error_count"] == 0 && scene.state(ANN) == "active"
        });

        // What another has consented to opens another's mailbox: nothing of it is taken in.
        let others = world.grant(BOB).unwrap().refresh_token.unwrap();
        let changed = scene.tell("PATCH", &path, &scene.acme, &json!({"refresh_token": others}));
        assert_eq!(changed.status, 200, "{changed:?}");
        wait_until("it is refused", || scene.state(ANN) == "needs_reauth");
        assert_eq!(place.emails("acme").len(), 5);
    });
}

#[test]
fn a_process_that_dies_with_a_token_in_its_hands_harms_nobody() {
    on_each_database(|place| {
        let google = Google::start();
        place.ok(&["tenant", "create", "acme"]);
        let token = place.write("token", google.world.grant(ANN).unwrap().refresh_token.unwrap());
        let added = run(place, &google, &[], &[&add(ANN)[..], &["--refresh-token-file", &token]].concat());
        assert_eq!(added.code, Some(0), "{added}");
        let serve = |failpoints: &str| {
            let mut command = place.command(PROGRAM, &["serve", "--roles", "worker,scheduler"]);
            command.envs(google.settings()).env(VARIABLE, failpoints);
            command.env("MAILROOM_SYNC__INTERVAL", "1s").env("MAILROOM_SYNC__SELDOM_INTERVAL", "1s");
            command.env("MAILROOM_SYNC__LEASE", "1s").env("MAILROOM_JOBS__LEASE", "1s");
            Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
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
fn is_up_to_date(place: &Place) -> bool {
    let one = |sql: &str| place.select(sql).len() == 1;
    one("select kind from secrets where kind = 'access_token'")
        && one("select status from sync_states where status = 'idle' and last_sync_at is not null")
        && place.emails("acme").len() == 5
}

#[test]
fn doctor_says_what_of_google_is_set_up() {
    let (place, google) = (Place::sqlite(), Google::start());

    let told = run(&place, &google, &[], &["doctor", "--json"]).objects();
    let finding = |told: &[Value]| told.iter().find(|finding| finding["check"] == "google").unwrap().clone();
    assert!(finding(&told)["detail"].as_str().unwrap().starts_with("an OAuth client"), "{told:?}");
    let topic = ("MAILROOM_PROVIDERS__GOOGLE__PUBSUB_TOPIC", "projects/p/topics/t");
    let told = run(&place, &google, &[topic], &["doctor", "--json"]);
    assert_eq!(told.code, Some(1));
    assert!(finding(&told.objects())["detail"].as_str().unwrap().contains("push_service_account"));
}
