//! Settings that all providers have: URLs, client ids and secrets.

use std::path::Path;

use domain::Secret;
use jwt::is_safe_url;

use super::ConfigError;
use super::reader::{SettingsReader, invalid_setting};

/// Reads an optional text that is not secret.
pub(super) fn optional(
    read: &mut SettingsReader,
    key: &'static str,
    expected: &str,
) -> Result<Option<String>, ConfigError> {
    match read.text(key, expected)? {
        None => {
            read.show(key, "none", &"default");
            Ok(None)
        }
        Some((text, origin)) => {
            let text = text.trim().to_owned();
            read.show(key, text.clone(), &origin);
            Ok(Some(text))
        }
    }
}

pub(super) fn client_secret(
    read: &mut SettingsReader,
    key: &'static str,
    file_key: &'static str,
) -> Result<Option<Secret<String>>, ConfigError> {
    let given = read.secret(key, file_key, "a secret");
    // The usual error would repeat the secret.
    let given = given.map_err(|e| match e.to_string() {
        text if text.contains("in quotes") => ConfigError::new(format!("`{key}` must be the secret in quotes")),
        _ => e,
    })?;
    let Some((secret, source)) = given else {
        read.show(key, "none", &"default");
        return Ok(None);
    };
    read.show(key, "***", &source);
    Ok(Some(Secret::new(secret.trim().to_owned())))
}

/// Reads a file with a secret such as a certificate. `wrong` returns what is wrong with its content, if anything.
pub(super) fn secret_file(
    read: &mut SettingsReader,
    key: &'static str,
    expected: &str,
    wrong: impl Fn(&Secret<String>) -> Option<String>,
) -> Result<Option<Secret<String>>, ConfigError> {
    let Some((path, origin)) = read.text(key, "the path of a file")? else {
        read.show(key, "none", &"default");
        return Ok(None);
    };
    let path = read.expand(Path::new(&path))?;
    let text = std::fs::read_to_string(&path)
        .map_err(|e| invalid_setting(key, &origin, &format!("names {}, which cannot be read: {e}", path.display())))?;
    let text = Secret::new(text);
    if let Some(why) = wrong(&text) {
        let why = format!("names {}, which {why}; it must be {expected}", path.display());
        return Err(invalid_setting(key, &origin, &why));
    }
    read.show(key, path.display().to_string(), &origin);
    Ok(Some(text))
}

/// Reads the URL of a provider; secrets are sent there, so it must be encrypted unless it is local.
pub(super) fn url(read: &mut SettingsReader, key: &'static str) -> Result<String, ConfigError> {
    const EXPECTED: &str = "a URL that begins with https://, or with http:// on this machine";
    let Some((url, origin)) = read.text(key, EXPECTED)? else {
        return Err(invalid_setting(key, "default", &format!("must be {EXPECTED}")));
    };
    if !is_safe_url(&url) || url.contains(['?', '#', ' ']) {
        return Err(invalid_setting(key, &origin, &format!("must be {EXPECTED}, not {}", url.escape_debug())));
    }
    let url = url.trim_end_matches('/').to_owned();
    read.show(key, url.clone(), &origin);
    Ok(url)
}
