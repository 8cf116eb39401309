//! The folder of a demo: its data, its settings, and a `mailroom` that uses them whatever the environment says.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sim::{google, microsoft};
use tempfile::TempDir;

use super::providers::{Providers, TOPIC};
use crate::failure::Failure;

/// How often a mailbox is looked at of which nothing was pushed.
const INTERVAL: &str = "30s";

/// And otherwise, for Google drops what it would tell within a second of something else.
const SELDOM_INTERVAL: &str = "1m";

/// What Google gives a mailbox in a minute, and what Microsoft gives it in ten, at rate 1.
const GOOGLE_UNITS: f64 = 6_000.0;
const MICROSOFT_REQUESTS: f64 = 10_000.0;

/// Of all mailboxes at one of them, in a second.
const CALLS: f64 = 150.0;

pub struct Place {
    folder: PathBuf,
    temporary: Option<TempDir>,
}

impl Place {
    pub fn new(wanted: Option<&Path>) -> Result<Self, Failure> {
        let Some(folder) = wanted else {
            let only_ours = fs::Permissions::from_mode(0o700);
            let temporary = tempfile::Builder::new().prefix("mailroom-demo-").permissions(only_ours).tempdir()?;
            return Ok(Self { folder: temporary.path().to_owned(), temporary: Some(temporary) });
        };
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::usage(format!("{} is not empty; give --data-dir a new folder", folder.display())));
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|e| Failure::usage(format!("--data-dir {} cannot be a folder: {e}", folder.display())))?;
        // Commands may be pasted anywhere.
        Ok(Self { folder: folder.canonicalize()?, temporary: None })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn settings(&self) -> PathBuf {
        self.path("mailroom.toml")
    }

    /// A program that people call.
    pub fn program(&self) -> PathBuf {
        self.path("mailroom")
    }

    /// `pace`: how many times faster than the providers usually allow; nothing: as fast as it goes.
    pub fn furnish(&self, providers: &Providers, listen: SocketAddr, pace: Option<f64>) -> Result<(), Failure> {
        fs::write(self.path("service-account.json"), providers.google.service_account_key().to_string())?;
        let mut text = String::from("# Written by `mailroom demo`. The providers are there for as long as it runs.\n");
        text += &format!("data_dir = {}\n", quoted(&self.folder.display().to_string()));
        for (section, settings) in self.sections(&providers.url(), listen, pace) {
            text += &format!("\n[{section}]\n");
            for (name, value) in settings {
                text += &format!("{name} = {value}\n");
            }
        }
        fs::write(self.settings(), text)?;
        let own = std::env::current_exe()?;
        let (own, settings) = (for_shell(&own), for_shell(&self.settings()));
        let script = format!(
            "#!/bin/sh\nexec env -i HOME=\"$HOME\" PATH=\"$PATH\" TERM=\"$TERM\" {own} --config {settings} \"$@\"\n"
        );
        fs::write(self.program(), script)?;
        Ok(fs::set_permissions(self.program(), fs::Permissions::from_mode(0o755))?)
    }

    fn sections(&self, url: &str, listen: SocketAddr, pace: Option<f64>) -> [(&'static str, Vec<Setting>); 4] {
        let text = |name, value: &str| (name, json!(value));
        let at = |name, path: &str| (name, json!(format!("{url}{path}")));
        // 0 is no limit.
        let paced = |amount: f64| json!(pace.map_or(0, |pace| (amount * pace.max(1.0)) as u64));
        let calls = ("calls_per_second", json!((CALLS * pace.unwrap_or(100.0).max(1.0)) as u64));
        let google = vec![
            at("auth_url", "/o/oauth2/v2/auth"),
            at("token_url", "/token"),
            at("jwks_url", "/oauth2/v3/certs"),
            at("api_url", ""),
            at("directory_url", ""),
            text("client_id", google::CLIENT_ID),
            text("client_secret", google::CLIENT_SECRET),
            text("service_account_file", &self.path("service-account.json").display().to_string()),
            text("pubsub_topic", TOPIC),
            text("push_service_account", &google::Endpoint::new("").service_account_email),
            ("user_units_per_minute", paced(GOOGLE_UNITS)),
            ("project_units_per_minute", json!(0)),
            calls.clone(),
        ];
        let microsoft = vec![
            at("authority_url", ""),
            at("graph_url", ""),
            text("client_id", microsoft::CLIENT_ID),
            text("client_secret", microsoft::CLIENT_SECRET),
            text("notification_url", &format!("http://{listen}/v1/hooks/graph")),
            ("mailbox_requests_per_10_minutes", paced(MICROSOFT_REQUESTS)),
            calls,
        ];
        [
            ("server", vec![text("listen", &listen.to_string())]),
            ("sync", vec![text("interval", INTERVAL), text("seldom_interval", SELDOM_INTERVAL)]),
            ("providers.google", google),
            ("providers.microsoft", microsoft),
        ]
    }

    /// The same of one in which nothing came about; why is in the server's log, if it got that far.
    pub fn leave_unused(self) -> String {
        let is_told = fs::metadata(self.path("serve.log")).is_ok_and(|log| log.len() > 0);
        match &self.temporary {
            None => format!("What was written is in {}.", self.folder.display()),
            Some(_) => self.leave(!is_told),
        }
    }

    /// What becomes of the folder, as a sentence. One that somebody may want to look into stays.
    pub fn leave(self, is_good: bool) -> String {
        let folder = self.folder.display();
        match self.temporary {
            Some(temporary) if is_good => match temporary.close() {
                Ok(()) => format!("The demo's folder {folder} is removed."),
                Err(e) => format!("The demo's folder {folder} cannot be removed: {e}"),
            },
            Some(temporary) => {
                format!("The demo's folder is kept for whoever wants to see why: {}", temporary.keep().display())
            }
            None => format!("What came in is kept in {folder}; {folder}/mailroom looks at it."),
        }
    }
}

type Setting = (&'static str, Value);

/// JSON's strings are TOML's as well.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

pub fn for_shell(path: &Path) -> String {
    let path = path.display().to_string();
    match path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_for_a_shell_where_that_is_needed() {
        assert_eq!(for_shell(Path::new("/srv/demo-1/mailroom")), "/srv/demo-1/mailroom");
        assert_eq!(for_shell(Path::new("/my demo's")), r"'/my demo'\''s'");
    }
}
