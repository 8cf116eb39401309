//! Where a provider's folder reads the settings of our app there, `[providers.<name>]`: the configuration, which also shows
//! and documents them. What is here is the same for several providers.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use domain::Secret;
use jwt::is_safe_url;

/// An invalid setting, as one sentence for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AppSettingError(pub String);

/// The settings that are in force, with where each comes from.
pub trait SettingsSource {
    fn is_given(&self, key: &'static str) -> bool;

    /// Reads an optional text with its origin. It is not shown: it may be a secret.
    fn text(&self, key: &'static str, expected: &str) -> Result<Option<(String, String)>, AppSettingError>;

    fn count(&mut self, key: &'static str, allowed: RangeInclusive<usize>) -> Result<usize, AppSettingError>;

    fn size(&mut self, key: &'static str, allowed: RangeInclusive<u64>) -> Result<u64, AppSettingError>;

    /// Reads a secret from its own key or from the file that `file_key` names. Returns it with its origin.
    fn secret(
        &mut self,
        key: &'static str,
        file_key: &'static str,
        expected: &str,
    ) -> Result<Option<(String, String)>, AppSettingError>;

    /// Expands `~` to the home folder.
    fn expand(&self, path: &Path) -> Result<PathBuf, AppSettingError>;

    /// Records a setting for `config show`.
    fn show(&mut self, key: &'static str, value: String, origin: &str);
}

/// Returns the error "`providers.google.api_url` must be … (mailroom.toml line 3)".
pub fn invalid_setting(key: &str, origin: &str, expected: &str) -> AppSettingError {
    AppSettingError(format!("`{key}` {expected} ({origin})"))
}

/// Reads an optional text that is not secret.
pub fn optional(
    source: &mut dyn SettingsSource,
    key: &'static str,
    expected: &str,
) -> Result<Option<String>, AppSettingError> {
    match source.text(key, expected)? {
        None => {
            source.show(key, "none".to_owned(), "default");
            Ok(None)
        }
        Some((text, origin)) => {
            let text = text.trim().to_owned();
            source.show(key, text.clone(), &origin);
            Ok(Some(text))
        }
    }
}

pub fn client_secret(
    source: &mut dyn SettingsSource,
    key: &'static str,
    file_key: &'static str,
) -> Result<Option<Secret<String>>, AppSettingError> {
    let given = source.secret(key, file_key, "a secret");
    // The usual error would repeat the secret.
    let given = given.map_err(|e| match e.to_string() {
        text if text.contains("in quotes") => AppSettingError(format!("`{key}` must be the secret in quotes")),
        _ => e,
    })?;
    let Some((secret, origin)) = given else {
        source.show(key, "none".to_owned(), "default");
        return Ok(None);
    };
    source.show(key, "***".to_owned(), &origin);
    Ok(Some(Secret::new(secret.trim().to_owned())))
}

/// Reads a file with a secret such as a certificate. `wrong` returns what is wrong with its content, if anything.
pub fn secret_file(
    source: &mut dyn SettingsSource,
    key: &'static str,
    expected: &str,
    wrong: impl Fn(&Secret<String>) -> Option<String>,
) -> Result<Option<Secret<String>>, AppSettingError> {
    let Some((path, origin)) = source.text(key, "the path of a file")? else {
        source.show(key, "none".to_owned(), "default");
        return Ok(None);
    };
    let path = source.expand(Path::new(&path))?;
    let text = std::fs::read_to_string(&path)
        .map_err(|e| invalid_setting(key, &origin, &format!("names {}, which cannot be read: {e}", path.display())))?;
    let text = Secret::new(text);
    if let Some(why) = wrong(&text) {
        let why = format!("names {}, which {why}; it must be {expected}", path.display());
        return Err(invalid_setting(key, &origin, &why));
    }
    source.show(key, path.display().to_string(), &origin);
    Ok(Some(text))
}

/// Reads the URL of a provider; secrets are sent there, so it must be encrypted unless it is local.
pub fn url(source: &mut dyn SettingsSource, key: &'static str) -> Result<String, AppSettingError> {
    const EXPECTED: &str = "a URL that begins with https://, or with http:// on this machine";
    let Some((url, origin)) = source.text(key, EXPECTED)? else {
        return Err(invalid_setting(key, "default", &format!("must be {EXPECTED}")));
    };
    if !is_safe_url(&url) || url.contains(['?', '#', ' ']) {
        return Err(invalid_setting(key, &origin, &format!("must be {EXPECTED}, not {}", url.escape_debug())));
    }
    let url = url.trim_end_matches('/').to_owned();
    source.show(key, url.clone(), &origin);
    Ok(url)
}
