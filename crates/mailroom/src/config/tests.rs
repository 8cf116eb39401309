//! Loading of the configuration from files and variables, and its error messages.

use super::*;
use providers::gmail::GoogleApp;
use providers::imap::ImapLimits;
use providers::outlook::MicrosoftApp;
use std::any::Any;
use std::collections::BTreeSet;

const NO_VARIABLES: [(&str, &str); 0] = [];

fn home() -> Option<PathBuf> {
    Some(PathBuf::from("/home/ada"))
}

fn with(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(None, variables.to_vec(), home())
}

/// Our app at a provider, as its folder has it.
fn app<T: Any>(config: &Config, provider: Provider) -> &T {
    let app: &dyn Any = config.providers.find(provider).unwrap();
    app.downcast_ref().unwrap()
}

fn google(config: &Config) -> &GoogleApp {
    app(config, Provider::Gmail)
}

fn refusal(name: &str, value: &str) -> String {
    with(&[(name, value)]).unwrap_err().to_string()
}

/// A folder with `mailroom.toml` in it, and that file's path.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(DEFAULT_CONFIG_FILE);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn shown<'a>(config: &'a Config, key: &str) -> &'a ShownSetting {
    config.show().iter().find(|shown| shown.key == key).unwrap()
}

#[test]
fn defaults_are_embedded_in_the_working_directory() {
    let config = with(&[]).unwrap();

    assert_eq!(config.data_dir, Path::new("./mailroom-data"));
    assert_eq!(config.database.url, DatabaseUrl::Sqlite("./mailroom-data/mailroom.db".into()));
    assert_eq!(config.blobs.url, BlobsUrl::File("./mailroom-data/blobs".into()));
    assert_eq!(config.limits, MessageLimits::default());
    assert_eq!((config.import.batch_messages, config.import.batch_bytes, config.import.in_flight), (512, 4 << 20, 3));
    assert_eq!((config.log.level(true), config.log.level(false)), (LogLevel::Info, LogLevel::Warn));
}

#[test]
fn every_known_setting_is_read_and_shown() {
    let config = with(&[]).unwrap();

    let shown: BTreeSet<String> = config.show().iter().map(|shown| shown.key.to_owned()).collect();
    let mut known = SettingLayers::defaults().unwrap().known().clone();
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
fn zero_bytes_per_day_differs_from_unset() {
    const NAME: &str = "MAILROOM_PROVIDERS__IMAP__BYTES_PER_DAY";

    assert_eq!(app::<ImapLimits>(&with(&[]).unwrap(), Provider::Imap).bytes_per_day, None);
    for (value, bytes) in [("0 B", 0), ("3 GB", 3_000_000_000)] {
        assert_eq!(app::<ImapLimits>(&with(&[(NAME, value)]).unwrap(), Provider::Imap).bytes_per_day, Some(bytes));
    }
    assert!(refusal(NAME, "3").contains("must have a unit after 3"));
    assert!(refusal(NAME, "2000 GiB").contains("must be from 0 B to 1024 GiB"));
}

#[test]
fn environment_wins_over_file_over_defaults() {
    let (_folder, path) = file("[import]\nin_flight = 5\nbatch_messages = 100\n");

    let config = Config::load(Some(&path), [("MAILROOM_IMPORT__IN_FLIGHT", "7")], home()).unwrap();

    assert_eq!((config.import.in_flight, config.import.batch_messages, config.import.batch_bytes), (7, 100, 4 << 20));
    assert_eq!(shown(&config, "import.in_flight").source, "MAILROOM_IMPORT__IN_FLIGHT");
    assert_eq!(shown(&config, "import.batch_messages").source, format!("{} line 3", path.display()));
    assert_eq!(shown(&config, "import.batch_bytes").source, "default");
}

#[test]
fn service_variables_are_passed_over() {
    let config = with(&[
        ("MAILROOM_PORT", "tcp://10.96.4.7:8025"),
        ("MAILROOM_DATABASE__POOL", "3"),
        ("MAILROOM_POSTGRES_SERVICE_HOST", "10.96.4.8"),
    ])
    .unwrap();

    assert_eq!(config.service_variables, ["MAILROOM_PORT", "MAILROOM_POSTGRES_SERVICE_HOST"]);
    assert_eq!(config.database.pool, 3);
    assert!(refusal("MAILROOM_PORT", "8025").contains("unknown setting `port`"));
    assert!(refusal("MAILROOM_DATABASE_URL", "tcp://10.96.4.8:5432").contains("MAILROOM_DATABASE__URL?"));
}

#[test]
fn named_file_replaces_the_default_file() {
    let (folder, _) = file("limits.parts = 7\n");
    let (_other, named) = file("limits.nesting = 9\n");

    let default_file = Config::load_in(folder.path(), None, NO_VARIABLES, home()).unwrap();
    let named = Config::load_in(folder.path(), Some(&named), NO_VARIABLES, home()).unwrap();

    assert_eq!((default_file.limits.parts, default_file.limits.nesting), (7, 32));
    assert_eq!((named.limits.parts, named.limits.nesting), (1000, 9));
}

#[test]
fn named_file_must_exist_and_be_text() {
    let missing = Config::load(Some(Path::new("/nowhere/m.toml")), NO_VARIABLES, None).unwrap_err().to_string();
    let folder = Config::load(Some(Path::new("/")), NO_VARIABLES, None).unwrap_err().to_string();

    assert!(missing.contains("/nowhere/m.toml"), "{missing}");
    assert!(folder.contains("cannot read the configuration file /:"), "{folder}");
}

#[test]
fn data_is_below_data_dir_and_tilde_is_home() {
    let config = with(&[("MAILROOM_DATA_DIR", "~/mail")]).unwrap();

    assert_eq!(config.data_dir, Path::new("/home/ada/mail"));
    assert_eq!(config.database.url, DatabaseUrl::Sqlite("/home/ada/mail/mailroom.db".into()));
    assert_eq!(shown(&config, "blobs.url").value, "file:///home/ada/mail/blobs");
    let homeless = Config::load(None, [("MAILROOM_DATA_DIR", "~/mail")], None).unwrap_err().to_string();
    assert!(homeless.contains("HOME"), "{homeless}");
}

#[test]
fn database_password_is_not_shown() {
    let url = "postgres://ada:hunter2@db:5432/mail";

    let config = with(&[("MAILROOM_DATABASE__URL", url)]).unwrap();

    assert_eq!(config.database.url, DatabaseUrl::Postgres(Secret::new(url.to_owned())));
    assert_eq!(shown(&config, "database.url").value, "postgres://ada:***@db:5432/mail");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn database_url_can_come_from_a_file() {
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
fn duplicate_or_empty_secret_is_refused() {
    let both = with(&[("MAILROOM_DATABASE__URL", "postgres://h/db"), ("MAILROOM_DATABASE__URL_FILE", "/x")]);
    assert!(both.unwrap_err().to_string().contains("both given"));

    let (_folder, empty) = file(" \n");
    let error = refusal("MAILROOM_DATABASE__URL_FILE", empty.to_str().unwrap());
    assert!(error.contains("which is empty"), "{error}");
    let error = refusal("MAILROOM_DATABASE__URL_FILE", "/nowhere/url");
    assert!(error.contains("/nowhere/url, which cannot be read"), "{error}");
}

#[test]
fn error_of_a_wrong_value_shows_a_right_one() {
    for (name, value, sentence) in [
        (
            "MAILROOM_LIMITS__MESSAGE_SIZE",
            "5 bananas",
            "`limits.message_size` must be a size such as \"50 MB\", not 5 bananas",
        ),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50", "must have a unit after 50, one of B, KB, MB, GB, KiB, MiB or GiB"),
        ("MAILROOM_LIMITS__BODY_SIZE", "9 GB", "`limits.body_size` must be from 1 KiB to 256 MiB, not 9 GB"),
        ("MAILROOM_LIMITS__BODY_SIZE", "", "must be a size such as \"50 MB\", not an empty text"),
        ("MAILROOM_IMPORT__IN_FLIGHT", "many", "`import.in_flight` must be a whole number from 1 to 64, not many"),
        ("MAILROOM_IMPORT__IN_FLIGHT", "0", "from 1 to 64, not 0"),
        ("MAILROOM_LOG__LEVEL", "loud", "must be one of off, error, warn, info, debug, trace, not loud"),
        ("MAILROOM_DATA_DIR", " ", "`data_dir` must be a folder, but is empty"),
        ("MAILROOM_DATABASE__URL", "mysql://u:p@h/db", "not mysql:// (MAILROOM_DATABASE__URL)"),
        ("MAILROOM_BLOBS__URL", "ftp://bucket", "not ftp:// (MAILROOM_BLOBS__URL)"),
        ("MAILROOM_SERVER__TRUSTED_PROXIES", "10.0.0.0/8, ten", "or addresses, not ten"),
        ("MAILROOM_AUTH__OIDC__ISSUER", "http://login.example", "must be the URL of an issuer"),
        ("MAILROOM_AUTH__OIDC__ISSUER", "https://login.example", "requires `auth.oidc.audience`"),
        ("MAILROOM_AUTH__OIDC__ALGORITHM", "HS256", "must be one of RS256"),
    ] {
        let error = refusal(name, value);

        assert!(error.contains(sentence), "{error}");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn wrong_type_in_a_file_names_its_line() {
    for (text, sentence) in [
        ("data_dir = 5", "`data_dir` must be a folder in quotes, not 5 ("),
        ("data_dir = [\"a\"]", "not a list ("),
        ("limits.message_size = 50", "must have a unit after 50"),
        ("limits.nesting = 2.5", "must be a whole number from 1 to 100, not 2.5"),
        ("limits.nesting = true", "not true ("),
    ] {
        let (_folder, path) = file(text);

        let error = Config::load(Some(&path), NO_VARIABLES, home()).unwrap_err().to_string();

        assert!(error.contains(sentence), "{error}");
        assert!(error.ends_with("mailroom.toml line 1)"), "{error}");
    }
}

#[test]
fn numbers_may_have_underscores() {
    let (_folder, path) = file("limits.parts = 2_000\n");

    let config = Config::load(Some(&path), [("MAILROOM_DATABASE__POOL", "4")], home()).unwrap();

    assert_eq!((config.limits.parts, config.database.pool), (2000, 4));
}

#[test]
fn long_value_is_cut_to_one_line() {
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
fn webhook_networks_are_a_list_or_have_commas() {
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
        assert!(refusal.contains("`webhooks.allow_networks` must be a list of networks"), "{bad}: {refusal}");
    }
}

#[test]
fn trusted_proxies_are_a_list_or_have_commas() {
    let (_folder, path) = file("server.trusted_proxies = [\"10.0.0.0/8\", \"192.0.2.1\"]\n");

    let from_file = Config::load(Some(&path), NO_VARIABLES, home()).unwrap();
    let from_variable = with(&[("MAILROOM_SERVER__TRUSTED_PROXIES", "10.0.0.0/8,192.0.2.1")]).unwrap();

    assert_eq!(from_file.edge.trusted_proxies, from_variable.edge.trusted_proxies);
    assert_eq!(shown(&from_file, "server.trusted_proxies").value, "10.0.0.0/8, 192.0.2.1");
    assert!(with(&[("MAILROOM_SERVER__TRUSTED_PROXIES", " ")]).unwrap().edge.trusted_proxies.is_empty());
}

#[test]
fn google_is_not_configured_by_default() {
    let config = with(&[]).unwrap();

    let google = google(&config);
    let (settings, own) = (&google.settings, providers::gmail::GoogleSettings::default());
    assert_eq!(
        (&settings.auth_url, &settings.token_url, &settings.api_url, &settings.jwks_url),
        (&own.auth_url, &own.token_url, &own.api_url, &own.jwks_url)
    );
    assert!(settings.client_id.is_none() && settings.service_account.is_none() && settings.topic.is_none());
    assert_eq!(google.push_audience, "http://127.0.0.1:8025/v1/hooks/gmail");
    assert_eq!((google.settings.user_units_per_minute, google.project_units_per_minute), (Some(6000), 1_200_000));
}

#[test]
fn client_secrets_are_not_shown() {
    let (_folder, path) = file("GOCSPX-hunter2\n");
    let path = path.to_str().unwrap();

    for provider in ["google", "microsoft"] {
        for (key, value) in [("CLIENT_SECRET", "GOCSPX-hunter2"), ("CLIENT_SECRET_FILE", path)] {
            let name = format!("MAILROOM_PROVIDERS__{}__{key}", provider.to_uppercase());
            let config = with(&[(&name, value)]).unwrap();

            let microsoft: &MicrosoftApp = app(&config, Provider::Outlook);
            let secret = &google(&config).settings.client_secret;
            let secret = secret.as_ref().or(microsoft.settings.client_secret.as_ref());
            assert_eq!(secret.unwrap().expose(), "GOCSPX-hunter2");
            assert_eq!(shown(&config, &format!("providers.{provider}.client_secret")).value, "***");
            assert!(!format!("{config:?}").contains("hunter2"));
        }
        let (_folder, wrong) = file(&format!("[providers.{provider}]\nclient_secret = 5551\n"));
        let error = Config::load(Some(&wrong), NO_VARIABLES, home()).unwrap_err().to_string();
        assert!(error.contains("must be the secret in quotes") && !error.contains("5551"), "{error}");
    }
}

#[test]
fn microsoft_is_not_configured_by_default() {
    let config = with(&[]).unwrap();

    let microsoft: &MicrosoftApp = app(&config, Provider::Outlook);
    let (settings, own) = (&microsoft.settings, providers::outlook::MicrosoftSettings::default());
    assert_eq!(
        (&settings.authority_url, &settings.authority, &settings.graph_url),
        (&own.authority_url, &own.authority, &own.graph_url)
    );
    assert!(!settings.has_client() && settings.push.is_none());
    assert_eq!((microsoft.rates.app.calls_per_second, microsoft.mailbox_requests_per_10_minutes), (150, 10_000));
}

#[test]
fn microsoft_errors_show_what_is_expected() {
    let (_folder, other) = file("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    for (key, value, sentence) in [
        ("AUTHORITY", "acme.test/x", "must be common, organizations, consumers, or a directory"),
        ("AUTHORITY_URL", "http://login.microsoftonline.com", "must be a URL that begins with https://"),
        ("GRAPH_URL", "graph.microsoft.com", "must be a URL that begins with https://"),
        ("NOTIFICATION_URL", "http://mail.example.com/hooks", "must be a URL that begins with https://"),
        ("CERTIFICATE_FILE", "/nowhere/app.pem", "names /nowhere/app.pem, which cannot be read"),
        (
            "CERTIFICATE_FILE",
            other.to_str().unwrap(),
            "which has no private key in PEM beside its certificate; it must be",
        ),
        ("CALLS_PER_SECOND", "0", "must be a whole number from 1"),
    ] {
        let name = format!("MAILROOM_PROVIDERS__MICROSOFT__{key}");
        let error = refusal(&name, value);

        assert!(error.contains(sentence) && error.contains(&name), "{error}");
    }
    for good in ["organizations", "acme.onmicrosoft.com", "9188040d-6c67-4c5b-b112-36a304b66dad"] {
        let config = with(&[("MAILROOM_PROVIDERS__MICROSOFT__AUTHORITY", good)]).unwrap();
        assert_eq!(app::<MicrosoftApp>(&config, Provider::Outlook).settings.authority, good);
    }
}

/// Loads settings whose variables lack the prefix.
fn with_prefix(prefix: &str, pairs: &[(&str, &str)]) -> Config {
    let variables = pairs.iter().map(|(key, value)| (format!("{prefix}{key}"), (*value).to_owned()));
    Config::load(None, variables.collect::<Vec<_>>(), home()).unwrap()
}

fn microsoft(pairs: &[(&str, &str)]) -> MicrosoftApp {
    app::<MicrosoftApp>(&with_prefix("MAILROOM_", pairs), Provider::Outlook).clone()
}

#[test]
fn incomplete_microsoft_settings_name_what_is_missing() {
    let (id, secret) = (("PROVIDERS__MICROSOFT__CLIENT_ID", "me"), ("PROVIDERS__MICROSOFT__CLIENT_SECRET", "hunter2"));
    let public = ("SERVER__PUBLIC_URL", "https://mail.example.com");

    assert!(microsoft(&[]).status().unwrap().starts_with("not configured"));
    assert!(microsoft(&[id]).status().unwrap_err().contains("certificate_file"));
    assert!(microsoft(&[secret]).status().unwrap_err().contains("client_id"));
    let without_push = microsoft(&[id, secret]);
    assert!(without_push.status().unwrap().contains("no push"), "Graph does not accept http://");
    for public in ["http://127.0.0.1:8080", "http://mail.example.com"] {
        assert!(microsoft(&[id, secret, ("SERVER__PUBLIC_URL", public)]).missing_push_reason().is_some(), "{public}");
    }
    assert_eq!(microsoft(&[]).missing_push_reason(), None, "without an app no push is expected");
    let pushed = microsoft(&[id, secret, public]);
    assert_eq!(
        (pushed.status().unwrap(), pushed.missing_push_reason()),
        ("an app with a secret, push".to_owned(), None)
    );
    let push = pushed.settings.push.unwrap();
    assert_eq!(push.notification_url, "https://mail.example.com/v1/hooks/graph");
    assert_eq!(push.lifecycle_url, "https://mail.example.com/v1/hooks/graph/lifecycle");
    let simulated = [id, secret, ("PROVIDERS__MICROSOFT__GRAPH_URL", "http://127.0.0.1:9000")];
    assert!(microsoft(&simulated).settings.push.is_some(), "a simulated one accepts it");
}

#[test]
fn google_errors_show_what_is_expected() {
    let (_folder, other) = file("{\"web\": {}}");
    for (key, value, sentence) in [
        ("PUBSUB_TOPIC", "my-topic", "must be a topic such as \"projects/PROJECT/topics/TOPIC\", not my-topic"),
        ("PUBSUB_TOPIC", "projects//topics/t", "must be a topic such as"),
        ("TOKEN_URL", "http://oauth2.googleapis.com/token", "must be a URL that begins with https://"),
        ("API_URL", "gmail.googleapis.com", "must be a URL that begins with https://"),
        ("PUSH_SERVICE_ACCOUNT", "push", "must be the address of a service account"),
        ("SERVICE_ACCOUNT_FILE", "/nowhere/key.json", "names /nowhere/key.json, which cannot be read"),
        ("SERVICE_ACCOUNT_FILE", other.to_str().unwrap(), "which is the file of an OAuth client"),
        ("CALLS_PER_SECOND", "0", "must be a whole number from 1"),
    ] {
        let name = format!("MAILROOM_PROVIDERS__GOOGLE__{key}");
        let error = refusal(&name, value);

        assert!(error.contains(sentence) && error.contains(&name), "{error}");
    }
    let local = with(&[("MAILROOM_PROVIDERS__GOOGLE__API_URL", "http://127.0.0.1:9000/")]).unwrap();
    assert_eq!(google(&local).settings.api_url, "http://127.0.0.1:9000");
}

fn google_status(pairs: &[(&str, &str)]) -> Result<String, String> {
    google(&with_prefix("MAILROOM_PROVIDERS__GOOGLE__", pairs)).status()
}

#[test]
fn incomplete_google_settings_name_what_is_missing() {
    let (id, secret) = (("CLIENT_ID", "me"), ("CLIENT_SECRET", "hunter2"));
    let (topic, push) = (("PUBSUB_TOPIC", "projects/p/topics/t"), ("PUSH_SERVICE_ACCOUNT", "push@p"));

    assert!(google_status(&[]).unwrap().starts_with("not configured"));
    assert_eq!(google_status(&[id, secret, topic, push]).unwrap(), "an OAuth client, push");
    assert!(google_status(&[id, secret]).unwrap().contains("no push"));
    assert!(google_status(&[id]).unwrap_err().contains("client_secret_file"));
    assert!(google_status(&[secret]).unwrap_err().contains("client_id"));
    assert!(google_status(&[id, secret, topic]).unwrap_err().contains("push_service_account"));
    assert!(google_status(&[id, secret, push]).unwrap_err().contains("pubsub_topic"));
    assert!(google_status(&[topic, push]).unwrap_err().contains("no mailbox can be opened"));
}
