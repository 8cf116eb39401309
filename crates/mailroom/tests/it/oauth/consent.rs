//! In the browser, with Google: the way there and back, and what follows from it.

use ::sim::google::Consent;
use serde_json::{Value, json};

use super::browser::{Browser, parameter, says};
use super::scene::Scene;
use super::site::{Google, Site};
use crate::place::on_each_database;
use crate::processes::wait_until;

const ANN: &str = Google::ANN;
const BOB: &str = Google::BOB;

#[test]
fn an_owner_connects_a_mailbox_in_a_browser_and_its_mail_comes() {
    on_each_database(|place| {
        let scene = Scene::<Google>::start(place);
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
        says(&browser.open(scene.address, &back), 200, "ann@gmail.test is connected for acme");

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
        scene.site.assert_well_asked();
    });
}

#[test]
fn a_wrong_choice_of_account_does_not_end_the_consent_of_one_that_is_connected() {
    on_each_database(|place| {
        let scene = Scene::<Google>::start(place);
        says(&scene.go_through(&scene.beta, &format!("?address={BOB}")), 200, "connected");
        wait_until("it works", || scene.state(BOB) == "active");

        scene.site.people(Consent { auto: true, account: Some(BOB.to_owned()), ..Consent::default() });
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}")), 409, "another account");

        assert_eq!(scene.site.revoked(), 0, "Google knows one consent of Bob to this app");
        scene.site.world.expire_access_tokens(None);
        place.ok(&["mailbox", "sync", BOB, "--tenant", "beta", "--wait"]);
        assert_eq!(scene.state(BOB), "active");
    });
}

#[test]
fn a_mailbox_whose_consent_has_ended_goes_on_with_another_and_keeps_what_it_has() {
    on_each_database(|place| {
        let scene = Scene::<Google>::start(place);
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}&backfill=all&exclude=Notes")), 200, "connected");
        wait_until("its mail is here", || place.emails("acme").len() == 5);
        let ids = || -> Vec<Value> { place.emails("acme").iter().map(|email| email["id"].clone()).collect() };
        let (before, id) = (ids(), scene.mailboxes("acme")[0]["id"].clone());

        scene.site.world.revoke_tokens(ANN);
        wait_until("it is refused", || scene.state(ANN) == "needs_reauth");
        let told = place.ok(&["mailbox", "show", ANN, "--tenant", "acme"]).text();
        assert!(told.contains("invalid_grant") && told.contains("mailroom mailbox connect gmail"), "{told}");
        let refreshed = scene.site.world.token_counts()[ANN].refreshed;
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(scene.site.world.token_counts()[ANN].refreshed, refreshed, "nobody asks any more");

        // By the link that the command prints, which needs no key.
        let settings = scene.site.settings();
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
        wait_until("Google has forgotten it", || scene.site.revoked() == 1);
        wait_until("and so have we", || scene.secrets("refresh_token") + scene.secrets("access_token") == 0);
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}&backfill=all")), 200, "connected");
        wait_until("it works once more", || scene.state(ANN) == "active");
        assert_eq!(scene.mailboxes("acme")[0]["id"], id);
        wait_until("with its mail", || place.emails("acme").len() == 5);
        scene.site.assert_well_asked();
    });
}
