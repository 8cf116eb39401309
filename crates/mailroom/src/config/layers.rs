//! Layers of raw settings: defaults, then the file, then the environment, each value with its origin.

use super::ConfigError;
use super::kubernetes::is_service_variable;
use domain::suggestion::nearest;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeArray, DeTable, DeValue};

const DEFAULTS: &str = include_str!("../../../../config/default.toml");

/// Settings without a fixed default: it depends on another setting, or is absent. `default.toml` shows them in comments.
pub(super) const WITHOUT_FIXED_DEFAULT: [&str; 32] = [
    "auth.admin_key_file",
    "auth.oidc.audience",
    "auth.oidc.issuer",
    "backup.postgres_url",
    "backup.postgres_url_file",
    "blobs.url",
    "database.url",
    "database.url_file",
    "instance.id",
    "cache.url",
    "jobs.concurrency",
    "log.level",
    "providers.google.client_id",
    "providers.google.client_secret",
    "providers.google.client_secret_file",
    "providers.google.pubsub_topic",
    "providers.google.push_audience",
    "providers.google.push_service_account",
    "providers.google.service_account_file",
    "providers.imap.bytes_per_day",
    "providers.microsoft.certificate_file",
    "providers.microsoft.client_id",
    "providers.microsoft.client_secret",
    "providers.microsoft.client_secret_file",
    "providers.microsoft.notification_url",
    "secrets.key",
    "secrets.key_file",
    "secrets.kms_url",
    "server.cors_origins",
    "server.metrics_listen",
    "server.public_url",
    "server.trusted_proxies",
];

const VARIABLE_PREFIX: &str = "MAILROOM_";

/// Prefixes of variables of tests and benchmarks, which are not settings.
const IGNORED_PREFIXES: [&str; 2] = ["MAILROOM_TEST_", "MAILROOM_BENCH_"];

/// Where a setting was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SettingOrigin {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Environment(name) => f.write_str(name),
        }
    }
}

/// A value as it was written, before it is parsed for its setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RawValue {
    Text(String),
    Number(String),
    /// `true` or `false`.
    Word(&'static str),
    /// List of texts; in the environment, one text with commas.
    List(Vec<String>),
    /// A TOML type that no setting has.
    Other(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawSetting {
    pub value: RawValue,
    pub origin: SettingOrigin,
}

/// The value of each setting so far; a later layer replaces it. Unknown keys are refused.
#[derive(Debug)]
pub(super) struct SettingLayers {
    known: BTreeSet<String>,
    settings: BTreeMap<String, RawSetting>,
    /// Variables of Kubernetes that are no settings.
    service_variables: Vec<String>,
}

impl SettingLayers {
    pub fn defaults() -> Result<Self, ConfigError> {
        let mut settings = BTreeMap::new();
        for (key, value, _) in entries(Path::new("config/default.toml"), DEFAULTS)? {
            if value != RawValue::Other(EMPTY_SECTION) {
                settings.insert(key, RawSetting { value, origin: SettingOrigin::Default });
            }
        }
        let known = settings.keys().cloned().chain(WITHOUT_FIXED_DEFAULT.map(str::to_owned)).collect();
        Ok(Self { known, settings, service_variables: Vec::new() })
    }

    pub fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| ConfigError::new(format!("cannot read the configuration file {}: {e}", path.display())))?;
        for (key, value, line) in entries(path, &text)? {
            self.put(key, value, SettingOrigin::File { path: path.to_owned(), line })?;
        }
        Ok(())
    }

    pub fn add_environment(
        &mut self,
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Result<(), ConfigError> {
        for (name, value) in variables {
            let Ok(name) = name.into().into_string() else { continue }; // not a setting: their names are ASCII
            let Some(key) = name.strip_prefix(VARIABLE_PREFIX) else { continue };
            if IGNORED_PREFIXES.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            let key = key.to_ascii_lowercase().replace("__", ".");
            let value = value.into().into_string().map_err(|_| {
                ConfigError::new(format!("the environment variable {name} holds bytes that are not UTF-8 text"))
            })?;
            if is_service_variable(&name, &value) {
                self.service_variables.push(name);
                continue;
            }
            self.put(key, RawValue::Text(value), SettingOrigin::Environment(name))?;
        }
        Ok(())
    }

    pub fn get(&self, key: &str) -> Option<&RawSetting> {
        self.settings.get(key)
    }

    /// Returns the names of the variables that were passed over because Kubernetes made them.
    pub fn service_variables(&self) -> &[String] {
        &self.service_variables
    }

    #[cfg(test)]
    pub fn known(&self) -> &BTreeSet<String> {
        &self.known
    }

    fn put(&mut self, key: String, value: RawValue, origin: SettingOrigin) -> Result<(), ConfigError> {
        if self.known.contains(&key) {
            self.settings.insert(key, RawSetting { value, origin });
            return Ok(());
        }
        let section = format!("{key}.");
        match self.known.iter().find(|known| known.starts_with(&section)) {
            Some(_) if value == RawValue::Other(EMPTY_SECTION) => Ok(()),
            Some(inside) => Err(ConfigError::new(format!(
                "`{key}` in {origin} is a section, not a setting; name a setting in it, such as `{inside}`"
            ))),
            None => Err(self.unknown(&key, &origin)),
        }
    }

    fn unknown(&self, key: &str, origin: &SettingOrigin) -> ConfigError {
        let known = self.known.iter().map(String::as_str);
        let near = nearest(key, known).unwrap_or_default();
        let key = key.escape_debug();
        ConfigError::new(match origin {
            SettingOrigin::Environment(name) => format!(
                "unknown setting `{key}` in the environment variable {name}; did you mean `{near}`, which is {}?",
                variable(near)
            ),
            _ => format!("unknown setting `{key}` in {origin}; did you mean `{near}`?"),
        })
    }
}

/// Returns the environment variable of a setting.
fn variable(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

const EMPTY_SECTION: &str = "a section";

/// Returns key, value and line of each entry of a TOML text.
fn entries(path: &Path, text: &str) -> Result<Vec<(String, RawValue, usize)>, ConfigError> {
    let table = DeTable::parse(text).map_err(|e| {
        let (line, column) = position(text, e.span().map_or(0, |span| span.start));
        let what = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
        ConfigError::new(format!("{} is not valid TOML at line {line}, column {column}: {what}", path.display()))
    })?;
    let mut found = Vec::new();
    flatten(text, "", table.get_ref(), &mut found);
    Ok(found)
}

fn flatten(text: &str, prefix: &str, table: &DeTable<'_>, found: &mut Vec<(String, RawValue, usize)>) {
    for (name, value) in table {
        let key = format!("{prefix}{}", name.get_ref());
        let value = match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => {
                flatten(text, &format!("{key}."), inner, found);
                continue;
            }
            DeValue::Table(_) => RawValue::Other(EMPTY_SECTION), // kept, so that an unknown section is refused though empty
            DeValue::String(text) => RawValue::Text(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => RawValue::Number(number.as_str().to_owned()),
            DeValue::Integer(_) => RawValue::Other("a number that is not decimal"),
            DeValue::Float(number) => RawValue::Number(number.as_str().to_owned()),
            DeValue::Boolean(true) => RawValue::Word("true"),
            DeValue::Boolean(false) => RawValue::Word("false"),
            DeValue::Datetime(_) => RawValue::Other("a date"),
            DeValue::Array(items) => list(items),
        };
        found.push((key, value, position(text, name.span().start).0));
    }
}

fn list(items: &DeArray<'_>) -> RawValue {
    let texts = items.iter().map(|item| match item.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    });
    texts.collect::<Option<_>>().map_or(RawValue::Other("a list with other values than texts"), RawValue::List)
}

/// Returns line and column, both from 1, of a byte offset in a text.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn file(text: &str) -> Result<SettingLayers, ConfigError> {
        let mut layers = SettingLayers::defaults()?;
        for (key, value, line) in entries(Path::new("mailroom.toml"), text)? {
            layers.put(key, value, SettingOrigin::File { path: "mailroom.toml".into(), line })?;
        }
        Ok(layers)
    }

    fn refusal(text: &str) -> String {
        file(text).unwrap_err().to_string()
    }

    fn environment(name: &str, value: impl Into<OsString>) -> Result<SettingLayers, ConfigError> {
        let mut layers = SettingLayers::defaults()?;
        layers.add_environment([(name, value.into())])?;
        Ok(layers)
    }

    #[test]
    fn default_toml_has_every_key() {
        let layers = SettingLayers::defaults().unwrap();

        for key in WITHOUT_FIXED_DEFAULT {
            let (section, name) = key.rsplit_once('.').unwrap();
            let (_, after) = DEFAULTS.split_once(&format!("\n[{section}]\n")).unwrap();
            let until_next_section = after.split("\n[").next().unwrap();
            assert!(until_next_section.contains(&format!("\n# {name} = ")), "{key}");
            assert!(layers.get(key).is_none(), "{key}");
        }
    }

    #[test]
    fn unknown_key_error_has_line_and_suggestion() {
        assert_eq!(
            refusal("# mine\n[databse]\nurl = \"sqlite://x\"\n"),
            "unknown setting `databse.url` in mailroom.toml line 3; did you mean `database.url`?"
        );
    }

    #[test]
    fn unknown_section_is_refused_even_if_empty() {
        assert!(refusal("[imports]").contains("unknown setting `imports`"));
        assert!(file("[import]").is_ok());
    }

    #[test]
    fn section_used_as_a_setting_is_refused() {
        let error = refusal("database = \"postgres://h/db\"");

        assert!(error.contains("is a section") && error.contains("`database.pool`"), "{error}");
    }

    #[test]
    fn toml_error_is_one_line_with_position() {
        let error = refusal("data_dir = \"x\"\n[import\nin_flight = 3\n");

        assert!(error.starts_with("mailroom.toml is not valid TOML at line 2, column 8"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn duplicate_key_in_a_file_is_refused() {
        assert!(refusal("data_dir = \"a\"\ndata_dir = \"b\"\n").contains("line 2"));
    }

    #[test]
    fn variables_name_settings_with_or_without_section() {
        let pool = environment("MAILROOM_DATABASE__POOL", "3").unwrap();
        let folder = environment("MAILROOM_DATA_DIR", "/x").unwrap();

        assert_eq!(pool.get("database.pool").unwrap().value, RawValue::Text("3".into()));
        assert_eq!(folder.get("data_dir").unwrap().origin.to_string(), "MAILROOM_DATA_DIR");
    }

    #[test]
    fn unknown_variable_error_names_the_right_one() {
        let error = environment("MAILROOM_DATABASE_URL", "x").unwrap_err().to_string();

        assert_eq!(
            error,
            "unknown setting `database_url` in the environment variable MAILROOM_DATABASE_URL; \
             did you mean `database.url`, which is MAILROOM_DATABASE__URL?"
        );
    }

    #[test]
    fn variables_of_other_programs_are_ignored() {
        for name in ["MAILROOM_TEST_POSTGRES_URL", "MAILROOM_BENCH_X", "mailroom_x", "MAILROOMS", "PATH"] {
            assert!(environment(name, "x").is_ok(), "{name}");
        }
    }

    #[test]
    fn only_our_variables_must_be_utf8() {
        let junk = OsString::from_vec(vec![0xff]);

        assert!(environment("PATH", junk.clone()).is_ok());
        let error = environment("MAILROOM_DATA_DIR", junk).unwrap_err().to_string();
        assert!(error.contains("MAILROOM_DATA_DIR") && error.contains("UTF-8"), "{error}");
    }
}
