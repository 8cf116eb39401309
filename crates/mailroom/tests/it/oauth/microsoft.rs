//! What only Microsoft has: accounts of an organization and of a person, and directories that let us in as a whole.

use ::sim::google::Consent;
use ::sim::microsoft::{certificate_key_pem, certificate_pem};
use serde_json::{Value, json};

use super::browser::{Browser, decide, parameter, says};
use super::scene::Scene;
use super::site::{Microsoft, Site, ZOE};
use crate::place::{Done, PROGRAM, Place, on_each_database};

const ANN: &str = Microsoft::ANN;

fn run(place: &Place, microsoft: &Microsoft, more: &[(&str, &str)], args: &[&str]) -> Done {
    let mut command = place.command(PROGRAM, args);
    command.envs(microsoft.settings()).envs(more.iter().copied());
    Done::of(&mut command)
}

/// What the database has of mailboxes.
fn mailboxes(place: &Place) -> Vec<String> {
    place.select("select provider || ' ' || address || ' ' || state from mailboxes order by address")
}

#[test]
fn owners_connect_accounts_of_an_organization_and_their_own() {
    on_each_database(|place| {
        let scene = Scene::<Microsoft>::start_web(place);
        let sent = Browser::default().open(scene.address, &scene.link(&scene.acme, &format!("?address={ANN}")));
        let asked = sent.headers["location"].clone();
        assert!(asked.contains("/common/oauth2/v2.0/authorize?"), "{asked}");
        for (name, value) in [
            ("response_type", "code"),
            ("response_mode", "query"),
            ("code_challenge_method", "S256"),
            ("prompt", "select_account"),
            (
                "scope",
                "offline_access+openid+email+https%3A%2F%2Fgraph.microsoft.com%2FUser.Read+https%3A%2F%2Fgraph.microsoft.com%2FMail.Read",
            ),
            ("login_hint", "ann%40contoso.test"),
        ] {
            assert_eq!(parameter(&asked, name).as_deref(), Some(value), "{asked}");
        }

        for address in [ANN, ZOE] {
            let told = scene.go_through(&scene.acme, &format!("?address={address}"));
            says(&told, 200, &format!("{address} is connected for acme"));
        }

        assert_eq!(mailboxes(place), [format!("outlook {ANN} connecting"), format!("outlook {ZOE} connecting")]);
        assert_eq!(scene.secrets("refresh_token"), 2);
        // Once more it is the same mailbox, with another secret.
        says(&scene.go_through(&scene.acme, &format!("?address={ANN}")), 200, "connected");
        assert_eq!((mailboxes(place).len(), scene.secrets("refresh_token")), (2, 2));
        scene.site.assert_well_asked();
    });
}

#[test]
fn an_administrator_lets_us_in_or_not_and_a_page_says_which() {
    on_each_database(|place| {
        let scene = Scene::<Microsoft>::start_web(place);
        let before = scene.everything();
        let public_url = format!("http://{}", scene.address);
        let here = ("MAILROOM_SERVER__PUBLIC_URL", &*public_url);
        let link = || {
            let args = ["mailbox", "authorize", "outlook", "--directory", "contoso.test", "--json"];
            let told = run(place, &scene.site, &[here], &args).objects().remove(0);
            told["url"].as_str().unwrap().to_owned()
        };
        let is_in = || !scene.site.world.directory("contoso.test").unwrap().consents.is_empty();
        let auto = || Consent { auto: true, ..Consent::default() };

        scene.site.people(Consent { denied: true, ..auto() });
        let back = decide(&scene, &link());
        says(&Browser::default().open(scene.address, &back), 403, "contoso.test has not let Mailroom in");
        assert!(!is_in());
        scene.site.people(auto());
        let back = decide(&scene, &link());
        says(&Browser::default().open(scene.address, &back), 200, "contoso.test has let Mailroom in");
        assert!(is_in());
        // It is no consent of an owner, and Google knows nothing of it.
        let state = parameter(&back, "state").unwrap();
        let elsewhere = format!("/v1/oauth/google/callback?state={state}&code=1");
        says(&Browser::default().open(scene.address, &elsewhere), 400, "begin again");
        let as_owner = format!("/v1/oauth/microsoft/callback?state={state}&code=1");
        says(&Browser::default().open(scene.address, &as_owner), 403, "has not let Mailroom in");
        assert_eq!(scene.everything(), before);
        scene.site.assert_well_asked();
    });
}

#[test]
fn a_mailbox_is_added_by_what_its_owner_or_its_directory_allows() {
    on_each_database(|place| {
        let microsoft = Microsoft::start();
        place.ok(&["tenant", "create", "acme"]);
        let token = place.write("token", microsoft.world.grant(ANN).unwrap().refresh_token.unwrap());
        let with = |address: &str, rest: &[&str], more: &[(&str, &str)]| {
            let add = ["mailbox", "add", "outlook", "--tenant", "acme", "--address", address, "--no-check"];
            run(place, &microsoft, more, &[&add[..], rest].concat())
        };

        let args = ["mailbox", "add", "outlook", "--tenant", "acme", "--address", ANN, "--refresh-token-file", &token];
        place.run(&args).assert_refused(2, &["providers.microsoft.client_id", "certificate_file"]);
        place.run(&["mailbox", "connect", "outlook", "--tenant", "acme"]).assert_refused(2, &["providers.microsoft"]);
        for usage in [
            &[][..],
            &["--refresh-token-file", &token, "--app-only"],
            &["--refresh-token-file", &token, "--directory", "x.test"],
        ] {
            assert_eq!(with(ANN, usage, &[]).code, Some(2), "{usage:?}");
        }
        with(ANN, &["--app-only", "--directory", "../x"], &[]).assert_refused(2, &["--directory", "domains"]);
        let both = place.write("app.pem", format!("{}{}", certificate_pem(), certificate_key_pem()));
        let certificate = ("MAILROOM_PROVIDERS__MICROSOFT__CERTIFICATE_FILE", &*both);
        with(ANN, &["--app-only"], &[certificate]).assert_refused(2, &["client_secret", "keep one of them"]);
        assert_eq!(mailboxes(place), Vec::<String>::new());

        assert_eq!(with(ANN, &["--refresh-token-file", &token], &[]).code, Some(0));
        assert_eq!(with(Microsoft::BOB, &["--app-only", "--directory", "contoso.test"], &[]).code, Some(0));
        assert_eq!(mailboxes(place).len(), 2);
        let settings = place.objects(&["mailbox", "list", "--tenant", "acme"]);
        let of =
            |address: &str| settings.iter().find(|mailbox| mailbox["address"] == address).unwrap()["settings"].clone();
        assert_eq!(of(ANN)["connection"], json!({}));
        assert_eq!(of(Microsoft::BOB)["connection"], json!({"app_only": true, "directory": "contoso.test"}));
        assert_eq!(place.select("select kind from secrets"), ["refresh_token"]);
    });
}

#[test]
fn the_api_takes_a_refresh_token_and_only_the_operator_opens_a_directory() {
    on_each_database(|place| {
        let scene = Scene::<Microsoft>::start_web(place);
        let operator = std::fs::read_to_string(place.data_dir().join("admin.key")).unwrap().trim().to_owned();
        let create = |key: &str, more: &Value| {
            let mut body = json!({"address": ANN, "provider": "outlook"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            scene.tell("POST", "/v1/mailboxes", key, &body)
        };

        create(&scene.acme, &json!({})).assert_problem(422, "/v1/oauth/microsoft/start");
        create(&scene.acme, &json!({"refresh_token": "x", "host": "h"}))
            .assert_problem(422, "outlook has no such thing");
        create(&scene.acme, &json!({"refresh_token": "x", "app_only": true})).assert_problem(422, "app_only");
        create(&scene.acme, &json!({"refresh_token": "x", "directory": "a.test"})).assert_problem(422, "directory");
        create(&scene.acme, &json!({"app_only": true, "directory": "a/b"})).assert_problem(422, "directory");
        create(&scene.acme, &json!({"app_only": true})).assert_problem(403, "operator");
        create(&scene.acme, &json!({"provider": "gmail", "app_only": true, "directory": "a.test"}))
            .assert_problem(422, "gmail has no such thing");
        let made = create(&scene.acme, &json!({"refresh_token": "1//hunter2"}));
        assert_eq!((made.status, &made.json()["provider"]), (201, &json!("outlook")), "{made:?}");
        assert!(!made.text().contains("hunter2"));

        let acme = scene.get("/v1/tenants", &operator).json()["items"][0]["id"].as_str().unwrap().to_owned();
        let body = json!({"address": ZOE, "provider": "outlook", "app_only": true, "directory": "contoso.test"});
        let headers = [("X-Tenant-Id", &*acme)];
        let made =
            crate::api::scene::try_tell(scene.address, "POST", "/v1/mailboxes", &operator, &body, &headers).unwrap();
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(mailboxes(place).len(), 2);
    });
}

#[test]
fn doctor_says_what_of_microsoft_is_set_up() {
    let (place, microsoft) = (Place::sqlite(), Microsoft::start());

    let finding = |told: &Done| told.objects().into_iter().find(|finding| finding["check"] == "microsoft").unwrap();
    let told = run(&place, &microsoft, &[], &["doctor", "--json"]);
    assert_eq!(finding(&told)["detail"], "an app with a secret, pushes");
    let id = ("MAILROOM_PROVIDERS__MICROSOFT__CLIENT_ID", "me");
    let mut half = place.command(PROGRAM, &["doctor", "--json"]);
    let told = Done::of(half.envs([id]));
    assert_eq!((told.code, &finding(&told)["ok"]), (Some(1), &json!(false)));
    assert!(finding(&told)["detail"].as_str().unwrap().contains("certificate_file"));
}
