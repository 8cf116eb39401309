//! The product with its blobs in a bucket.

use store::blobs::RemoteKind;
use store::testing::object_stores;

use crate::installation::{CommandOutput, PASSWORD, TestInstallation, on_each_database};
use crate::mail::{mbox, simple};

/// What an operator sets for a bucket on one of the test servers, below a prefix of its own.
fn settings(kind: RemoteKind) -> Vec<(String, String)> {
    settings_at(kind, &object_stores::url(kind))
}

fn settings_at(kind: RemoteKind, url: &str) -> Vec<(String, String)> {
    let mailroom = format!("{}://{}/{}", kind.scheme(), object_stores::BUCKET, object_stores::fresh_prefix());
    let variables = object_stores::variables(kind, url).into_iter().map(|(name, value)| (name.to_owned(), value));
    variables.chain([("MAILROOM_BLOBS__URL".to_owned(), mailroom)]).collect()
}

fn run(mailroom: &TestInstallation, settings: &[(String, String)], args: &[&str]) -> CommandOutput {
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    mailroom.run_with(&settings, args)
}

fn ok(mailroom: &TestInstallation, settings: &[(String, String)], args: &[&str]) -> CommandOutput {
    let done = run(mailroom, settings, args);
    assert_eq!(done.code, Some(0), "mailroom {args:?}: {done}");
    done
}

fn with(mut settings: Vec<(String, String)>, name: &str, value: &str) -> Vec<(String, String)> {
    settings.retain(|(other, _)| other != name);
    settings.push((name.to_owned(), value.to_owned()));
    settings
}

#[test]
fn mail_in_a_bucket_is_exact() {
    for kind in [RemoteKind::S3, RemoteKind::Azure] {
        on_each_database(|mailroom| {
            let settings = settings(kind);
            let file = mailroom.write("a.mbox", mbox(9, 12));
            // Larger than what is held in memory on the way out.
            let large =
                mailroom.write("large.eml", simple("large", &"All of this is one long body.\r\n".repeat(100_000)));
            for file in [&file, &large] {
                ok(mailroom, &settings, &["import", file, "--tenant", "acme", "--mailbox", "me@acme.test"]);
            }

            let doctor = ok(mailroom, &settings, &["doctor"]);
            assert!(doctor.text().contains("can write, read and delete an object"), "{doctor}");
            ok(mailroom, &settings, &["verify", "--deep"]);
            assert!(!mailroom.data_dir().join("blobs").exists(), "nothing beside the bucket");

            let out = mailroom.path("out.mbox");
            ok(mailroom, &settings, &["export", "--tenant", "acme", "--out", out.to_str().unwrap()]);
            let other = TestInstallation::sqlite();
            other.import(&file);
            other.import(&large);
            let expected = other.path("out.mbox");
            other.ok(&["export", "--tenant", "acme", "--out", expected.to_str().unwrap()]);
            assert!(std::fs::read(out).unwrap() == std::fs::read(expected).unwrap());

            let found =
                ok(mailroom, &settings, &["search", "subject:large", "--tenant", "acme", "--json"]).objects().remove(0);
            let id = found["id"].as_str().unwrap();
            let raw = ok(mailroom, &settings, &["email", "show", id, "--tenant", "acme", "--raw"]).stdout;
            assert!(raw == std::fs::read(&large).unwrap());
        });
    }
}

#[test]
fn bucket_settings_are_shown_without_secrets() {
    let mailroom = TestInstallation::sqlite();
    let settings = settings_at(RemoteKind::S3, "http://127.0.0.1:1");
    assert!(settings.iter().any(|(_, value)| value == PASSWORD), "each run looks for it in all that is printed");

    let shown = ok(&mailroom, &settings, &["config", "show"]);

    assert!(shown.text().contains("s3://mailroom-test/"), "{shown}");
    assert!(shown.text().contains("blobs.retry_for"), "{shown}");
}

#[test]
fn bucket_problem_is_one_sentence() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("a.eml", simple("a", "b"));
    mailroom.ok(&["tenant", "create", "acme"]);
    let import = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];
    let nowhere = with(settings(RemoteKind::S3), "MAILROOM_BLOBS__URL", "s3://mailroom-nowhere");
    let wrong_key = with(settings(RemoteKind::Azure), "AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=");
    let http = with(settings(RemoteKind::S3), "AWS_ALLOW_HTTP", "false");
    let down = with(settings_at(RemoteKind::S3, "http://127.0.0.1:1"), "MAILROOM_BLOBS__RETRY_FOR", "1s");

    run(&mailroom, &nowhere, &import)
        .assert_refused(2, &["s3://mailroom-nowhere does not exist; create it, or correct blobs.url"]);
    run(&mailroom, &wrong_key, &import).assert_refused(2, &["denies access", "AZURE_STORAGE_ACCOUNT_KEY"]);
    run(&mailroom, &http, &import).assert_refused(2, &["mail would travel unencrypted", "AWS_ALLOW_HTTP=true"]);
    let down = run(&mailroom, &down, &["doctor"]);
    assert_eq!(down.code, Some(1));
    assert!(down.text().contains("BAD  blobs"), "{down}");
    assert!(down.text().contains("check that it is up and that blobs.url is right"), "{down}");
}

/// The folder of a backup is plain files, wherever the objects came from and wherever they go.
#[test]
fn backup_moves_mail_out_of_a_bucket() {
    for kind in [RemoteKind::S3, RemoteKind::Azure] {
        let (mailroom, from) = (TestInstallation::sqlite(), settings(kind));
        let file = mailroom.write("a.mbox", mbox(9, 12));
        let backup = mailroom.path("backup").into_os_string().into_string().unwrap();
        ok(&mailroom, &from, &["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"]);

        ok(&mailroom, &from, &["backup", "--out", &backup]);

        let (elsewhere, to) = (TestInstallation::sqlite(), settings(kind));
        ok(&elsewhere, &to, &["restore", &backup]);
        ok(&elsewhere, &to, &["verify", "--deep"]);
        let in_files = TestInstallation::sqlite();
        in_files.ok(&["restore", &backup]);
        in_files.assert_whole();
        assert_eq!(in_files.emails("acme").len(), 12);
        let again = run(&TestInstallation::sqlite(), &from, &["restore", &backup]);
        assert_eq!(again.code, Some(0), "objects of this very backup are no obstacle: {again}");
        let other = settings(kind);
        let stranger = TestInstallation::sqlite();
        ok(&stranger, &other, &["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"]);
        let refused = run(&TestInstallation::sqlite(), &other, &["restore", &backup]);
        refused.assert_refused(1, &["blobs.url contains objects that do not belong to this backup"]);
    }
}
