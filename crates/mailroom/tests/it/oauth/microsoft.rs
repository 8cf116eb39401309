//! Commands that connect Outlook mailboxes, with a refresh token or by the right of their directory.

use ::sim::microsoft::{certificate_key_pem, certificate_pem};
use serde_json::json;

use super::site::MicrosoftSite;
use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};

const ANN: &str = MicrosoftSite::ANN;

fn run(place: &TestInstallation, microsoft: &MicrosoftSite, more: &[(&str, &str)], args: &[&str]) -> CommandOutput {
    let mut command = place.command(PROGRAM, args);
    command.envs(microsoft.settings()).envs(more.iter().copied());
    CommandOutput::of(&mut command)
}

/// What the database has of mailboxes.
fn mailboxes(place: &TestInstallation) -> Vec<String> {
    place.select("select provider || ' ' || address || ' ' || state from mailboxes order by address")
}

#[test]
fn authorize_command_prints_a_link_for_administrators() {
    let (place, microsoft) = (TestInstallation::sqlite(), MicrosoftSite::start());
    let args = ["mailbox", "authorize", "outlook", "--directory", "contoso.test", "--json"];
    let here = ("MAILROOM_SERVER__PUBLIC_URL", "https://mail.example");
    let link = run(&place, &microsoft, &[here], &args).objects().remove(0)["url"].as_str().unwrap().to_owned();
    assert!(link.starts_with(&format!("{}/contoso.test/", microsoft.url())), "{link}");
    for part in ["redirect_uri=https%3A%2F%2Fmail.example%2Fv1%2Foauth%2Fmicrosoft%2Fcallback", "state="] {
        assert!(link.contains(part), "{link}");
    }
}

#[test]
fn mailbox_is_added_by_its_owner_or_its_directory() {
    on_each_database(|place| {
        let microsoft = MicrosoftSite::start();
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
        assert_eq!(with(MicrosoftSite::BOB, &["--app-only", "--directory", "contoso.test"], &[]).code, Some(0));
        assert_eq!(mailboxes(place).len(), 2);
        let settings = place.objects(&["mailbox", "list", "--tenant", "acme"]);
        let of =
            |address: &str| settings.iter().find(|mailbox| mailbox["address"] == address).unwrap()["settings"].clone();
        assert_eq!(of(ANN)["connection"], json!({}));
        assert_eq!(of(MicrosoftSite::BOB)["connection"], json!({"app_only": true, "directory": "contoso.test"}));
        assert_eq!(place.select("select kind from secrets"), ["refresh_token"]);
    });
}

#[test]
fn doctor_reports_the_microsoft_setup() {
    let (place, microsoft) = (TestInstallation::sqlite(), MicrosoftSite::start());

    let finding =
        |told: &CommandOutput| told.objects().into_iter().find(|finding| finding["check"] == "microsoft").unwrap();
    let told = run(&place, &microsoft, &[], &["doctor", "--json"]);
    assert_eq!(finding(&told)["detail"], "an app with a secret, push");
    let id = ("MAILROOM_PROVIDERS__MICROSOFT__CLIENT_ID", "me");
    let mut half = place.command(PROGRAM, &["doctor", "--json"]);
    let told = CommandOutput::of(half.envs([id]));
    assert_eq!((told.code, &finding(&told)["ok"]), (Some(1), &json!(false)));
    assert!(finding(&told)["detail"].as_str().unwrap().contains("certificate_file"));
}
