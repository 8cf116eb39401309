//! The settings as an operator meets them: files and variables in, values and sentences out.

use super::*;
use std::collections::BTreeSet;

const NO_VARIABLES: [(&str, &str); 0] = [];

fn home() -> Option<PathBuf> {
    Some(PathBuf::from("/home/ada"))
}

fn with(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(None, variables.to_vec(), home())
}

fn refusal(name: &str, value: &str) -> String {
    with(&[(name, value)]).unwrap_err().to_string()
}

/// A folder with `mailroom.toml` in it, and that file's path.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn shown<'a>(config: &'a Config, key: &str) -> &'a Shown {
    config.show().iter().find(|shown| shown.key == key).unwrap()
}

#[test]
fn without_a_file_and_environment_it_runs_embedded_in_the_working_directory() {
    let config = with(&[]).unwrap();

    assert_eq!(config.data_dir, Path::new("./mailroom-data"));
    assert_eq!(config.database.url, DatabaseUrl::Sqlite("./mailroom-data/mailroom.db".into()));
    assert_eq!(config.blobs.url, BlobsUrl::File("./mailroom-data/blobs".into()));
    assert_eq!(config.limits, Limits::default());
    assert_eq!((config.import.batch_messages, config.import.batch_bytes, config.import.in_flight), (512, 4 << 20, 3));
    assert_eq!(config.log.level, LogLevel::Warn);
}

#[test]
fn every_known_setting_is_read_and_shown() {
    let config = with(&[]).unwrap();

    let shown: BTreeSet<String> = config.show().iter().map(|shown| shown.key.to_owned()).collect();
    let mut known = Layers::defaults().unwrap().known().clone();
    for shown_when_given in [
        "database.url_file",
        "backup.postgres_url_file",
        "providers.google.client_secret_file",
        "providers.microsoft.client_secret_file",
    ] {
        known.remove(shown_when_given);
    }
    assert_eq!(shown, known);
    assert!(config.show().iter().all(|shown| shown.source == "default"));
}

#[test]
fn no_limit_of_bytes_per_day_is_something_else_than_none_that_was_given() {
    const NAME: &str = "MAILROOM_PROVIDERS__IMAP__BYTES_PER_DAY";
    let given = |value| with(&[(NAME, value)]).unwrap().providers.imap_bytes_per_day;

    assert_eq!(with(&[]).unwrap().providers.imap_bytes_per_day, None);
    assert_eq!((given("0 B"), given("3 GB")), (Some(0), Some(3_000_000_000)));
    assert!(refusal(NAME, "3").contains("wants a unit after 3"));
    assert!(refusal(NAME, "2000 GiB").contains("may be from 0 B to 1024 GiB"));
}

#[test]
fn the_file_wins_over_defaults_and_the_environment_over_the_file() {
    let (_folder, path) = file("[import]\nin_flight = 5\nbatch_messages = 100\n");

    let config = Config::load(Some(&path), [("MAILROOM_IMPORT__IN_FLIGHT", "7")], home()).unwrap();

    assert_eq!((config.import.in_flight, config.import.batch_messages, config.import.batch_bytes), (7, 100, 4 << 20));
    assert_eq!(shown(&config, "import.in_flight").source, "MAILROOM_IMPORT__IN_FLIGHT");
    assert_eq!(shown(&config, "import.batch_messages").source, format!("{} line 3", path.display()));
    assert_eq!(shown(&config, "import.batch_bytes").source, "default");
}

#[test]
fn the_file_in_the_working_directory_is_read_unless_another_is_named() {
    let (folder, _) = file("limits.parts = 7\n");
    let (_other, named) = file("limits.nesting = 9\n");

    let usual = Config::load_in(folder.path(), None, NO_VARIABLES, home()).unwrap();
    let named = Config::load_in(folder.path(), Some(&named), NO_VARIABLES, home()).unwrap();

    assert_eq!((usual.limits.parts, usual.limits.nesting), (7, 32));
    assert_eq!((named.limits.parts, named.limits.nesting), (1000, 9));
}

#[test]
fn a_named_file_must_exist_and_be_text() {
    let missing = Config::load(Some(Path::new("/nowhere/m.toml")), NO_VARIABLES, None).unwrap_err().to_string();
    let folder = Config::load(Some(Path::new("/")), NO_VARIABLES, None).unwrap_err().to_string();

    assert!(missing.contains("/nowhere/m.toml"), "{missing}");
    assert!(folder.contains("can't read the configuration file /:"), "{folder}");
}

#[test]
fn data_follows_the_data_folder_and_a_tilde_is_home() {
    let config = with(&[("MAILROOM_DATA_DIR", "~/mail")]).unwrap();

    assert_eq!(config.data_dir, Path::new("/home/ada/mail"));
    assert_eq!(config.database.url, DatabaseUrl::Sqlite("/home/ada/mail/mailroom.db".into()));
    assert_eq!(shown(&config, "blobs.url").value, "file:///home/ada/mail/blobs");
    let homeless = Config::load(None, [("MAILROOM_DATA_DIR", "~/mail")], None).unwrap_err().to_string();
    assert!(homeless.contains("HOME"), "{homeless}");
}

#[test]
fn a_password_is_in_the_url_and_nowhere_else() {
    let url = "postgres://ada:hunter2@db:5432/mail";

    let config = with(&[("MAILROOM_DATABASE__URL", url)]).unwrap();

    assert_eq!(config.database.url, DatabaseUrl::Postgres(Secret::new(url.to_owned())));
    assert_eq!(shown(&config, "database.url").value, "postgres://ada:***@db:5432/mail");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn the_database_url_can_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("url");
    std::fs::write(&path, "\npostgres://ada:hunter2@db/mail\n").unwrap();
    let path = path.to_str().unwrap();

    let config = with(&[("MAILROOM_DATABASE__URL_FILE", path)]).unwrap();

    let DatabaseUrl::Postgres(url) = &config.database.url else { panic!("{:?}", config.database.url) };
    assert_eq!(url.expose(), "postgres://ada:hunter2@db/mail");
    assert_eq!(shown(&config, "database.url").source, "database.url_file in MAILROOM_DATABASE__URL_FILE");
    assert_eq!(shown(&config, "database.url_file").value, path);
}

#[test]
fn a_secret_given_twice_or_in_a_file_that_says_nothing_is_refused() {
    let both = with(&[("MAILROOM_DATABASE__URL", "postgres://h/db"), ("MAILROOM_DATABASE__URL_FILE", "/x")]);
    assert!(both.unwrap_err().to_string().contains("both given"));

    let (_folder, empty) = file(" \n");
    let error = refusal("MAILROOM_DATABASE__URL_FILE", empty.to_str().unwrap());
    assert!(error.contains("which is empty"), "{error}");
    let error = refusal("MAILROOM_DATABASE__URL_FILE", "/nowhere/url");
    assert!(error.contains("/nowhere/url, which can't be read"), "{error}");
}

#[test]
fn a_wrong_value_is_refused_in_a_sentence_that_shows_a_right_one() {
    for (name, value, sentence) in [
        (
            "MAILROOM_LIMITS__MESSAGE_SIZE",
            "5 bananas",
            "`limits.message_size` wants a size like \"50 MB\", not 5 bananas",
        ),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50", "wants a unit after 50, one of B, KB, MB, GB, KiB, MiB or GiB"),
        ("MAILROOM_LIMITS__BODY_SIZE", "9 GB", "`limits.body_size` may be from 1 KiB to 256 MiB, not 9 GB"),
        ("MAILROOM_LIMITS__BODY_SIZE", "", "wants a size like \"50 MB\", not an empty text"),
        ("MAILROOM_IMPORT__IN_FLIGHT", "many", "`import.in_flight` wants a whole number from 1 to 64, not many"),
        ("MAILROOM_IMPORT__IN_FLIGHT", "0", "from 1 to 64, not 0"),
        ("MAILROOM_LOG__LEVEL", "loud", "wants one of off, error, warn, info, debug, trace, not loud"),
        ("MAILROOM_DATA_DIR", " ", "`data_dir` wants a folder, and is empty"),
        ("MAILROOM_DATABASE__URL", "mysql://u:p@h/db", "not mysql:// (MAILROOM_DATABASE__URL)"),
        ("MAILROOM_BLOBS__URL", "ftp://bucket", "not ftp:// (MAILROOM_BLOBS__URL)"),
        ("MAILROOM_SERVER__TRUSTED_PROXIES", "10.0.0.0/8, ten", "or addresses, not ten"),
        ("MAILROOM_AUTH__OIDC__ISSUER", "http://login.example", "wants the URL of an issuer"),
        ("MAILROOM_AUTH__OIDC__ISSUER", "https://login.example", "needs `auth.oidc.audience` beside it"),
        ("MAILROOM_AUTH__OIDC__ALGORITHM", "HS256", "wants one of RS256"),
    ] {
        let error = refusal(name, value);

        assert!(error.contains(sentence), "{error}");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn a_wrong_type_in_a_file_names_its_line() {
    for (text, sentence) in [
        ("data_dir = 5", "`data_dir` wants a folder in quotes, not 5 ("),
        ("data_dir = [\"a\"]", "not a list ("),
        ("limits.message_size = 50", "wants a unit after 50"),
        ("limits.nesting = 2.5", "wants a whole number from 1 to 100, not 2.5"),
        ("limits.nesting = true", "not true ("),
    ] {
        let (_folder, path) = file(text);

        let error = Config::load(Some(&path), NO_VARIABLES, home()).unwrap_err().to_string();

        assert!(error.contains(sentence), "{error}");
        assert!(error.ends_with("mailroom.toml line 1)"), "{error}");
    }
}

#[test]
fn numbers_may_come_from_either_side_and_with_underscores() {
    let (_folder, path) = file("limits.parts = 2_000\n");

    let config = Config::load(Some(&path), [("MAILROOM_DATABASE__POOL", "4")], home()).unwrap();

    assert_eq!((config.limits.parts, config.database.pool), (2000, 4));
}

#[test]
fn a_long_or_multi_line_value_is_cut_to_one_line() {
    let error = refusal("MAILROOM_LOG__LEVEL", &"loud\n".repeat(100));

    assert!(!error.contains('\n') && error.len() < 250, "{error}");
}

#[test]
fn log_levels_keep_their_words() {
    for (word, level) in LogLevel::ALL {
        assert_eq!(level.as_str(), word);
    }
}

#[test]
fn networks_that_webhooks_may_reach_come_as_a_list_or_with_commas() {
    assert_eq!(with(&[]).unwrap().webhooks.allow_networks, []);
    assert_eq!(shown(&with(&[]).unwrap(), "webhooks.allow_networks").value, "none");
    let (_folder, path) = file("[webhooks]\nallow_networks = [\"10.1.0.0/16\", \"fd00::/8\"]\n");
    let listed = Config::load(Some(&path), NO_VARIABLES, home()).unwrap();
    let named = with(&[("MAILROOM_WEBHOOKS__ALLOW_NETWORKS", "10.1.0.0/16, fd00::/8")]).unwrap();
    assert_eq!(listed.webhooks.allow_networks, named.webhooks.allow_networks);
    assert_eq!(listed.webhooks.allow_networks.len(), 2);
    assert_eq!(shown(&named, "webhooks.allow_networks").value, "10.1.0.0/16, fd00::/8");
    for bad in ["10.1.0.0", "10.1.0.1/16", "10.0.0.0/33", "private", "10.1.0.0/16 10.2.0.0/16"] {
        let refusal = refusal("MAILROOM_WEBHOOKS__ALLOW_NETWORKS", bad);
        assert!(refusal.contains("`webhooks.allow_networks` wants a list of networks"), "{bad}: {refusal}");
    }
}

#[test]
fn a_list_is_written_as_one_or_with_commas() {
    let (_folder, path) = file("server.trusted_proxies = [\"10.0.0.0/8\", \"192.0.2.1\"]\n");

    let from_file = Config::load(Some(&path), NO_VARIABLES, home()).unwrap();
    let from_variable = with(&[("MAILROOM_SERVER__TRUSTED_PROXIES", "10.0.0.0/8,192.0.2.1")]).unwrap();

    assert_eq!(from_file.edge.trusted_proxies, from_variable.edge.trusted_proxies);
    assert_eq!(shown(&from_file, "server.trusted_proxies").value, "10.0.0.0/8, 192.0.2.1");
    assert!(with(&[("MAILROOM_SERVER__TRUSTED_PROXIES", " ")]).unwrap().edge.trusted_proxies.is_empty());
}

#[test]
fn google_is_nobody_and_at_its_own_place_by_default() {
    let config = with(&[]).unwrap();

    let google = &config.providers.google;
    let (settings, own) = (&google.settings, connectors::google::GoogleSettings::default());
    assert_eq!(
        (&settings.auth_url, &settings.token_url, &settings.api_url, &settings.jwks_url),
        (&own.auth_url, &own.token_url, &own.api_url, &own.jwks_url)
    );
    assert!(settings.client_id.is_none() && settings.service_account.is_none() && settings.topic.is_none());
    assert_eq!(config.push_audience(), "http://127.0.0.1:8025/v1/hooks/gmail");
    assert_eq!((google.settings.user_units_per_minute, google.project_units_per_minute), (Some(6000), 1_200_000));
}

#[test]
fn the_secret_of_an_app_is_kept_and_not_shown() {
    let (_folder, path) = file("GOCSPX-hunter2\n");
    let path = path.to_str().unwrap();

    for provider in ["google", "microsoft"] {
        for (key, value) in [("CLIENT_SECRET", "GOCSPX-hunter2"), ("CLIENT_SECRET_FILE", path)] {
            let name = format!("MAILROOM_PROVIDERS__{}__{key}", provider.to_uppercase());
            let config = with(&[(&name, value)]).unwrap();

            let Providers { google, microsoft, .. } = &config.providers;
            let secret = google.settings.client_secret.as_ref().or(microsoft.settings.client_secret.as_ref());
            assert_eq!(secret.unwrap().expose(), "GOCSPX-hunter2");
            assert_eq!(shown(&config, &format!("providers.{provider}.client_secret")).value, "***");
            assert!(!format!("{config:?}").contains("hunter2"));
        }
        let (_folder, wrong) = file(&format!("[providers.{provider}]\nclient_secret = 5551\n"));
        let error = Config::load(Some(&wrong), NO_VARIABLES, home()).unwrap_err().to_string();
        assert!(error.contains("wants the secret in quotes") && !error.contains("5551"), "{error}");
    }
}

#[test]
fn microsoft_is_nobody_and_at_its_own_place_by_default() {
    let config = with(&[]).unwrap();

    let microsoft = &config.providers.microsoft;
    let (settings, own) = (&microsoft.settings, connectors::microsoft::MicrosoftSettings::default());
    assert_eq!(
        (&settings.authority_url, &settings.authority, &settings.graph_url),
        (&own.authority_url, &own.authority, &own.graph_url)
    );
    assert!(!settings.has_client() && settings.push.is_none());
    assert_eq!((microsoft.rates.app.calls_per_second, microsoft.mailbox_requests_per_10_minutes), (150, 10_000));
}

#[test]
fn mistakes_about_microsoft_are_told_with_what_is_wanted() {
    let (_folder, other) = file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    for (key, value, sentence) in [
        ("AUTHORITY", "acme.test/x", "wants common, organizations, consumers, or a directory"),
        ("AUTHORITY_URL", "http://login.microsoftonline.com", "wants a URL that begins with https://"),
        ("GRAPH_URL", "graph.microsoft.com", "wants a URL that begins with https://"),
        ("NOTIFICATION_URL", "http://mail.example.com/hooks", "wants a URL that begins with https://"),
        ("CERTIFICATE_FILE", "/nowhere/app.pem", "names /nowhere/app.pem, which can't be read"),
        (
            "CERTIFICATE_FILE",
            other.to_str().unwrap(),
            "which has no private key in PEM beside its certificate; it wants",
        ),
        ("CALLS_PER_SECOND", "0", "wants a whole number from 1"),
    ] {
        let name = format!("MAILROOM_PROVIDERS__MICROSOFT__{key}");
        let error = refusal(&name, value);

        assert!(error.contains(sentence) && error.contains(&name), "{error}");
    }
    for good in ["organizations", "acme.onmicrosoft.com", "9188040d-6c67-4c5b-b112-36a304b66dad"] {
        let config = with(&[("MAILROOM_PROVIDERS__MICROSOFT__AUTHORITY", good)]).unwrap();
        assert_eq!(config.providers.microsoft.settings.authority, good);
    }
}

#[test]
fn what_is_half_set_up_at_microsoft_says_what_is_missing() {
    let microsoft = |pairs: &[(&str, &str)]| {
        let named = |(key, value): &(&str, &str)| (format!("MAILROOM_{key}"), (*value).to_owned());
        let config = Config::load(None, pairs.iter().map(named).collect::<Vec<_>>(), home()).unwrap();
        config.providers.microsoft
    };
    let (id, secret) = (("PROVIDERS__MICROSOFT__CLIENT_ID", "me"), ("PROVIDERS__MICROSOFT__CLIENT_SECRET", "hunter2"));
    let public = ("SERVER__PUBLIC_URL", "https://mail.example.com");

    assert!(microsoft(&[]).standing().unwrap().starts_with("not set up"));
    assert!(microsoft(&[id]).standing().unwrap_err().contains("certificate_file"));
    assert!(microsoft(&[secret]).standing().unwrap_err().contains("client_id"));
    let by_the_clock = microsoft(&[id, secret]);
    assert!(by_the_clock.standing().unwrap().contains("no pushes"), "Graph does not take http://");
    for public in ["http://127.0.0.1:8080", "http://mail.example.com"] {
        assert!(microsoft(&[id, secret, ("SERVER__PUBLIC_URL", public)]).lacks_pushes().is_some(), "{public}");
    }
    assert_eq!(microsoft(&[]).lacks_pushes(), None, "nobody wants any");
    let pushed = microsoft(&[id, secret, public]);
    assert_eq!((pushed.standing().unwrap(), pushed.lacks_pushes()), ("an app with a secret, pushes".to_owned(), None));
    let push = pushed.settings.push.unwrap();
    assert_eq!(push.notification_url, "https://mail.example.com/v1/hooks/graph");
    assert_eq!(push.lifecycle_url, "https://mail.example.com/v1/hooks/graph/lifecycle");
    let simulated = [id, secret, ("PROVIDERS__MICROSOFT__GRAPH_URL", "http://127.0.0.1:9000")];
    assert!(microsoft(&simulated).settings.push.is_some(), "a simulated one does");
}

#[test]
fn mistakes_about_google_are_told_with_what_is_wanted() {
    let (_folder, other) = file("{\"web\": {}}");
    for (key, value, sentence) in [
        ("PUBSUB_TOPIC", "my-topic", "wants a topic like \"projects/PROJECT/topics/TOPIC\", not my-topic"),
        ("PUBSUB_TOPIC", "projects//topics/t", "wants a topic like"),
        ("TOKEN_URL", "http://oauth2.googleapis.com/token", "wants a URL that begins with https://"),
        ("API_URL", "gmail.googleapis.com", "wants a URL that begins with https://"),
        ("PUSH_SERVICE_ACCOUNT", "push", "wants the address of a service account"),
        ("SERVICE_ACCOUNT_FILE", "/nowhere/key.json", "names /nowhere/key.json, which can't be read"),
        ("SERVICE_ACCOUNT_FILE", other.to_str().unwrap(), "which is the file of an OAuth client"),
        ("CALLS_PER_SECOND", "0", "wants a whole number from 1"),
    ] {
        let name = format!("MAILROOM_PROVIDERS__GOOGLE__{key}");
        let error = refusal(&name, value);

        assert!(error.contains(sentence) && error.contains(&name), "{error}");
    }
    let local = with(&[("MAILROOM_PROVIDERS__GOOGLE__API_URL", "http://127.0.0.1:9000/")]).unwrap();
    assert_eq!(local.providers.google.settings.api_url, "http://127.0.0.1:9000");
}

#[test]
fn what_is_half_set_up_at_google_says_what_is_missing() {
    let standing = |pairs: &[(&str, &str)]| {
        let named = |(key, value): &(&str, &str)| (format!("MAILROOM_PROVIDERS__GOOGLE__{key}"), (*value).to_owned());
        let config = Config::load(None, pairs.iter().map(named).collect::<Vec<_>>(), home()).unwrap();
        config.providers.google.standing()
    };
    let (id, secret) = (("CLIENT_ID", "me"), ("CLIENT_SECRET", "hunter2"));
    let (topic, push) = (("PUBSUB_TOPIC", "projects/p/topics/t"), ("PUSH_SERVICE_ACCOUNT", "push@p"));

    assert!(standing(&[]).unwrap().starts_with("not set up"));
    assert_eq!(standing(&[id, secret, topic, push]).unwrap(), "an OAuth client, pushes");
    assert!(standing(&[id, secret]).unwrap().contains("no pushes"));
    assert!(standing(&[id]).unwrap_err().contains("client_secret_file"));
    assert!(standing(&[secret]).unwrap_err().contains("client_id"));
    assert!(standing(&[id, secret, topic]).unwrap_err().contains("push_service_account"));
    assert!(standing(&[id, secret, push]).unwrap_err().contains("pubsub_topic"));
    assert!(standing(&[topic, push]).unwrap_err().contains("no mailbox can be opened"));
}
