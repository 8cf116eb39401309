//! In the browser: the way there and back, and everything that must not work.

use ::sim::google::{Consent, READONLY};
use serde_json::{Value, json};

use super::browser::{Browser, parameter, without};
use super::google::{ANN, BOB, Scene};
use crate::http;
use crate::place::on_each_database;
use crate::processes::wait_until;

fn says(answer: &http::Answer, status: u16, text: &str) {
    let body = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{body}");
    assert!(body.contains(text), "{text:?} is not in {body}");
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    assert!(answer.headers["content-security-policy"].starts_with("default-src 'none'"));
    assert!(!body.contains("<script") && !body.contains("<style"));
    assert_eq!((&*answer.headers["cache-control"], &*answer.headers["referrer-policy"]), ("no-store", "no-referrer"));
}

#[test]
fn an_owner_connects_a_mailbox_in_a_browser_and_its_mail_comes() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let link = scene.link(&scene.acme, &format!("?address={ANN}&backfill=all"));
        let mut browser = Browser::default();

        let sent = browser.open(scene.address, &link);
        let cookie = sent.headers["set-cookie"].clone();
        for part in ["HttpOnly", "SameSite=Lax", "Path=/v1/oauth", "Max-Age=600"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains("Secure"), "http:// would not send it back");
        let asked = sent.headers["location"].clone();
        for (name, value) in [
            ("response_type", "code"),
            ("code_challenge_method", "S256"),
            ("access_type", "offline"),
            ("prompt", "consent"),
            ("include_granted_scopes", "true"),
            ("login_hint", "ann%40gmail.test"),
        ] {
            assert_eq!(parameter(&asked, name).as_deref(), Some(value), "{asked}");
        }
        let back = Browser::default().consent(&scene, &link);
        // That was another browser.
        says(&browser.open(scene.address, &back), 403, "another browser");
        let back = browser.consent(&scene, &link);
        says(&browser.open(scene.address, &back), 200, "ann@gmail.test is connected");

        wait_until("its mail is here", || place.emails("acme").len() == 5);
        assert_eq!(scene.state(ANN), "active");
        assert_eq!((scene.secrets("refresh_token"), scene.secrets("access_token")), (1, 1));
        let entry: Value = serde_json::from_str(&place.select("select entry from audit order by seq desc")[0]).unwrap();
        let entry = match entry["action"] == "mailbox.connect" {
            true => entry,
            false => panic!("{entry}"),
        };
        assert!(entry["actor"].as_str().unwrap().starts_with("key:"), "{entry}");
        assert_eq!(scene.mailboxes("beta"), Vec::<Value>::new());
        scene.google.assert_well_asked();
    });
}

#[test]
fn whoever_comes_back_with_something_else_changes_nothing() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        says(&scene.go_through(&scene.beta, &format!("?address={BOB}")), 200, "connected");
        wait_until("it is at rest", || scene.state(BOB) == "active");
        let before = scene.everything();
        let mut browser = Browser::default();
        let back = browser.consent(&scene, &scene.link(&scene.acme, &format!("?address={ANN}")));
        let state = parameter(&back, "state").unwrap();
        let mut open = |path: &str| browser.open(scene.address, path);

        // A state that is made up, altered, or missing.
        says(&open(&back.replace(&state, "AAAA")), 400, "begin again");
        let altered = if state.ends_with('A') {
            format!("{}B", &state[..state.len() - 1])
        } else {
            format!("{}A", &state[..state.len() - 1])
        };
        says(&open(&back.replace(&state, &altered)), 400, "begin again");
        says(&open(&without(&back, "state")), 400, "begin again");
        // Another tenant's state, by whoever got hold of it.
        let foreign = Browser::default().consent(&scene, &scene.link(&scene.beta, ""));
        let foreign_state = parameter(&foreign, "state").unwrap();
        says(&open(&back.replace(&state, &foreign_state)), 403, "another browser");
        // Another browser, with no cookie or with one of its own.
        says(&Browser::default().open(scene.address, &back), 403, "another browser");
        let mut other = Browser::default();
        other.consent(&scene, &scene.link(&scene.acme, ""));
        says(&other.open(scene.address, &back), 403, "another browser");
        // As JSON for who asks for it.
        let told = http::ask(scene.address, "GET", &back, &[("Accept", "application/json")]);
        told.assert_problem(403, "another browser");
        assert_eq!(scene.everything(), before);
        assert_eq!(scene.google.revoked(), 0, "no code was used");
    });
}

#[test]
fn a_person_who_does_not_allow_it_all_is_told_so_and_nothing_is_kept() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let before = scene.everything();
        let auto = || Consent { auto: true, ..Consent::default() };

        scene.google.people(Consent { denied: true, ..auto() });
        says(&scene.go_through(&scene.acme, ""), 403, "did not allow it");
        assert_eq!(scene.google.revoked(), 0);

        scene.google.people(Consent { unticked: vec![READONLY.to_owned()], ..auto() });
        says(&scene.go_through(&scene.acme, ""), 403, "tick the box");
        assert_eq!(scene.google.revoked(), 1);

        scene.google.people(Consent { account: Some(BOB.to_owned()), ..auto() });
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}")), 409, "another account");
        assert_eq!(scene.google.revoked(), 2);

        scene.google.people(auto());
        let mut browser = Browser::default();
        let back = browser.consent(&scene, &scene.link(&scene.acme, ""));
        says(&browser.open(scene.address, &without(&back, "code")), 400, "no code");
        let made_up = scene.link(&scene.acme, "").replace("ticket=", "ticket=A");
        says(&Browser::default().open(scene.address, &made_up), 400, "not valid");
        assert_eq!(scene.everything(), before);
        scene.google.assert_well_asked();
    });
}

#[test]
fn a_wrong_choice_of_account_does_not_end_the_consent_of_one_that_is_connected() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        says(&scene.go_through(&scene.beta, &format!("?address={BOB}")), 200, "connected");
        wait_until("it works", || scene.state(BOB) == "active");

        scene.google.people(Consent { auto: true, account: Some(BOB.to_owned()), ..Consent::default() });
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}")), 409, "another account");

        assert_eq!(scene.google.revoked(), 0, "Google knows one consent of Bob to this app");
        scene.google.world.expire_access_tokens(None);
        place.ok(&["mailbox", "sync", BOB, "--tenant", "beta", "--wait"]);
        assert_eq!(scene.state(BOB), "active");
    });
}

#[test]
fn a_callback_that_comes_twice_is_good_once() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        let mut browser = Browser::default();
        let back = browser.consent(&scene, &scene.link(&scene.acme, &format!("?address={ANN}")));
        let cookies = browser.cookies.clone();
        says(&browser.open(scene.address, &back), 200, "connected");
        assert!(browser.cookies.is_empty(), "it is not needed any more");
        wait_until("it is at rest", || scene.state(ANN) == "active");
        let before = scene.everything();

        says(&Browser { cookies }.open(scene.address, &back), 400, "used before");
        assert_eq!(scene.everything(), before);
    });
}

#[test]
fn a_mailbox_whose_consent_has_ended_goes_on_with_another_and_keeps_what_it_has() {
    on_each_database(|place| {
        let scene = Scene::start(place);
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}&backfill=all&exclude=Notes")), 200, "connected");
        wait_until("its mail is here", || place.emails("acme").len() == 5);
        let ids = || -> Vec<Value> { place.emails("acme").iter().map(|email| email["id"].clone()).collect() };
        let (before, id) = (ids(), scene.mailboxes("acme")[0]["id"].clone());

        scene.google.world.revoke_tokens(ANN);
        wait_until("it is refused", || scene.state(ANN) == "needs_reauth");
        let told = place.ok(&["mailbox", "show", ANN, "--tenant", "acme"]).text();
        assert!(told.contains("invalid_grant") && told.contains("mailroom mailbox connect gmail"), "{told}");
        let refreshed = scene.google.world.token_counts()[ANN].refreshed;
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(scene.google.world.token_counts()[ANN].refreshed, refreshed, "nobody asks any more");

        // By the link that the command prints, which needs no key.
        let settings = scene.google.settings();
        let public_url = format!("http://{}", scene.address);
        let mut variables: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        variables.push(("MAILROOM_SERVER__PUBLIC_URL", &public_url));
        let args = ["mailbox", "connect", "gmail", "--tenant", "acme", "--address", ANN, "--json"];
        let link = place.run_with(&variables, &args).objects().remove(0);
        let mut browser = Browser::default();
        let back = browser.consent(&scene, &scene.path(link["url"].as_str().unwrap()));
        says(&browser.open(scene.address, &back), 200, "connected");
        wait_until("it works again", || scene.state(ANN) == "active");
        assert_eq!((ids(), scene.mailboxes("acme")[0]["id"].clone()), (before, id.clone()));
        assert_eq!(scene.mailboxes("acme")[0]["settings"]["exclude"], json!(["Notes"]), "as it was wanted");

        // Also after it was let go of.
        let gone = scene.tell("DELETE", &format!("/v1/mailboxes/{}", id.as_str().unwrap()), &scene.acme, &Value::Null);
        assert_eq!(gone.status, 200, "{gone:?}");
        wait_until("Google has forgotten it", || scene.google.revoked() == 1);
        wait_until("and so have we", || scene.secrets("refresh_token") + scene.secrets("access_token") == 0);
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}&backfill=all")), 200, "connected");
        wait_until("it works once more", || scene.state(ANN) == "active");
        assert_eq!(scene.mailboxes("acme")[0]["id"], id);
        wait_until("with its mail", || place.emails("acme").len() == 5);
        scene.google.assert_well_asked();
    });
}
