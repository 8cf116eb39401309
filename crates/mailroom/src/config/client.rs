//! What the sections of providers have in common: who we are there, and where that is.

use std::path::Path;

use domain::Secret;
use engine::oidc::is_safe_url;

use super::ConfigError;
use super::read::{Reader, refuse};

/// A text that is no secret and may be absent.
pub(super) fn optional(read: &mut Reader, key: &'static str, wants: &str) -> Result<Option<String>, ConfigError> {
    match read.text(key, wants)? {
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
    read: &mut Reader,
    key: &'static str,
    file_key: &'static str,
) -> Result<Option<Secret<String>>, ConfigError> {
    let given = read.secret(key, file_key, "a secret");
    // The sentence would repeat what was written.
    let given = given.map_err(|e| match e.to_string() {
        text if text.contains("in quotes") => ConfigError::new(format!("`{key}` wants the secret in quotes")),
        _ => e,
    })?;
    let Some((secret, source)) = given else {
        read.show(key, "none", &"default");
        return Ok(None);
    };
    read.show(key, "***", &source);
    Ok(Some(Secret::new(secret.trim().to_owned())))
}

/// The text of a file that holds a secret of another kind; `wrong` says what is wrong with it, if something is.
pub(super) fn secret_file(
    read: &mut Reader,
    key: &'static str,
    wants: &str,
    wrong: impl Fn(&Secret<String>) -> Option<String>,
) -> Result<Option<Secret<String>>, ConfigError> {
    let Some((path, origin)) = read.text(key, "the path of a file")? else {
        read.show(key, "none", &"default");
        return Ok(None);
    };
    let path = read.expand(Path::new(&path))?;
    let refused = |why: String| refuse(key, &origin, &format!("names {}, which {why}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|e| refused(format!("can't be read: {e}")))?;
    let text = Secret::new(text);
    if let Some(why) = wrong(&text) {
        return Err(refused(format!("{why}; it wants {wants}")));
    }
    read.show(key, path.display().to_string(), &origin);
    Ok(Some(text))
}

/// Nobody between us and a provider may read what we send, and that is secrets.
pub(super) fn url(read: &mut Reader, key: &'static str) -> Result<String, ConfigError> {
    const WANTS: &str = "a URL that begins with https://, or with http:// on this machine";
    let Some((url, origin)) = read.text(key, WANTS)? else {
        return Err(refuse(key, "default", &format!("wants {WANTS}")));
    };
    if !is_safe_url(&url) || url.contains(['?', '#', ' ']) {
        return Err(refuse(key, &origin, &format!("wants {WANTS}, not {}", url.escape_debug())));
    }
    let url = url.trim_end_matches('/').to_owned();
    read.show(key, url.clone(), &origin);
    Ok(url)
}
