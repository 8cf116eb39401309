//! The folder of a demo: its data, its settings, and a script `mailroom` that uses them whatever the environment says.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sim::{google, microsoft};
use tempfile::TempDir;
use terminal::Failure;

use super::providers::{DemoProviders, PUBSUB_TOPIC};

/// How often a mailbox without pushes is polled.
const POLL_INTERVAL: &str = "30s";

/// How often a mailbox with pushes is polled: Google drops a push within a second of another one.
const PUSHED_POLL_INTERVAL: &str = "1m";

/// Quotas of a mailbox at rate 1.
const GOOGLE_UNITS_PER_MINUTE: f64 = 6_000.0;
const MICROSOFT_REQUESTS_PER_10_MINUTES: f64 = 10_000.0;

/// Calls for all mailboxes of one provider.
const CALLS_PER_SECOND: f64 = 150.0;

/// A folder that is removed at the end, unless the user has given it or something is wrong.
pub struct DemoFolder {
    folder: PathBuf,
    temporary: Option<TempDir>,
}

impl DemoFolder {
    /// Creates the folder, or a temporary one if none is given.
    pub fn new(given: Option<&Path>) -> Result<Self, Failure> {
        let Some(folder) = given else {
            let owner_only = fs::Permissions::from_mode(0o700);
            let temporary = tempfile::Builder::new().prefix("mailroom-demo-").permissions(owner_only).tempdir()?;
            return Ok(Self { folder: temporary.path().to_owned(), temporary: Some(temporary) });
        };
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::usage(format!("{} is not empty; give --data-dir a new folder", folder.display())));
        }
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|e| Failure::usage(format!("--data-dir {} cannot be a folder: {e}", folder.display())))?;
        // Commands may be pasted anywhere.
        Ok(Self { folder: folder.canonicalize()?, temporary: None })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn settings(&self) -> PathBuf {
        self.path("mailroom.toml")
    }

    /// Returns the path of the script that people call.
    pub fn program(&self) -> PathBuf {
        self.path("mailroom")
    }

    /// Writes settings, key and script. `speed` is how many times faster than the providers usually allow; without it there is
    /// no limit.
    pub fn write_files(
        &self,
        providers: &DemoProviders,
        listen: SocketAddr,
        speed: Option<f64>,
    ) -> Result<(), Failure> {
        fs::write(self.path("service-account.json"), providers.google.service_account_key().to_string())?;
        let mut text = String::from("# Written by `mailroom demo`. The providers are there for as long as it runs.\n");
        text += &format!("data_dir = {}\n", quoted(&self.folder.display().to_string()));
        for (section, settings) in self.sections(&providers.url(), listen, speed) {
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

    fn sections(&self, url: &str, listen: SocketAddr, speed: Option<f64>) -> [(&'static str, Vec<SettingLine>); 5] {
        let calls_per_second = CALLS_PER_SECOND * speed.unwrap_or(100.0).max(1.0);
        let calls = ("calls_per_second", json!(calls_per_second as u64));
        let google = vec![
            text("auth_url", &format!("{url}/o/oauth2/v2/auth")),
            text("token_url", &format!("{url}/token")),
            text("jwks_url", &format!("{url}/oauth2/v3/certs")),
            text("api_url", url),
            text("directory_url", url),
            text("client_id", google::CLIENT_ID),
            text("client_secret", google::CLIENT_SECRET),
            text("service_account_file", &self.path("service-account.json").display().to_string()),
            text("pubsub_topic", PUBSUB_TOPIC),
            text("push_service_account", &google::PushEndpoint::new("").service_account_email),
            ("user_units_per_minute", quota(GOOGLE_UNITS_PER_MINUTE, speed)),
            ("project_units_per_minute", json!(0)),
            calls.clone(),
        ];
        let microsoft = vec![
            text("authority_url", url),
            text("graph_url", url),
            text("client_id", microsoft::CLIENT_ID),
            text("client_secret", microsoft::CLIENT_SECRET),
            text("notification_url", &format!("http://{listen}/v1/hooks/graph")),
            ("mailbox_requests_per_10_minutes", quota(MICROSOFT_REQUESTS_PER_10_MINUTES, speed)),
            calls,
        ];
        [
            ("server", vec![text("listen", &listen.to_string())]),
            // Only problems: a log that is not empty keeps the folder.
            ("log", vec![text("level", "warn")]),
            (
                "sync",
                vec![
                    text("interval", POLL_INTERVAL),
                    text("seldom_interval", PUSHED_POLL_INTERVAL),
                    text("second_look", "1s"),
                ],
            ),
            ("providers.google", google),
            ("providers.microsoft", microsoft),
        ]
    }

    /// Removes or keeps the folder of a demo that did not start, and returns a sentence about it. It is kept if the server's log
    /// has a reason.
    pub fn close_unused(self) -> String {
        let has_log = fs::metadata(self.path("serve.log")).is_ok_and(|log| log.len() > 0);
        match &self.temporary {
            None => format!("What was written is in {}.", self.folder.display()),
            Some(_) => self.close(!has_log),
        }
    }

    /// Removes or keeps the folder, and returns a sentence about it. It is kept if something is wrong.
    pub fn close(self, is_good: bool) -> String {
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

type SettingLine = (&'static str, Value);

fn text(name: &'static str, value: &str) -> SettingLine {
    (name, json!(value))
}

/// Returns a quota for a speed; 0, which is no limit, without one.
fn quota(amount: f64, speed: Option<f64>) -> Value {
    json!(speed.map_or(0, |speed| (amount * speed.max(1.0)) as u64))
}

/// Quotes a string for TOML, whose strings may be those of JSON.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

/// Quotes a path for a shell, if necessary.
pub fn for_shell(path: &Path) -> String {
    let path = path.display().to_string();
    if path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        return path;
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_quoted_for_a_shell_where_needed() {
        assert_eq!(for_shell(Path::new("/srv/demo-1/mailroom")), "/srv/demo-1/mailroom");
        assert_eq!(for_shell(Path::new("/my demo's")), r"'/my demo'\''s'");
    }
}
