//! Who this Mailroom is at Microsoft, and how much it may ask of it.

use connectors::microsoft::{Certificate, GraphPush, MicrosoftSettings, is_directory};

use super::ConfigError;
use super::client::{client_secret, optional, secret_file, url};
use super::rates::{self, Rates, rates};
use super::read::{Reader, refuse};

#[derive(Debug, Clone)]
pub struct Microsoft {
    pub settings: MicrosoftSettings,
    pub rates: Rates,
    /// 0: no limit.
    pub mailbox_requests_per_10_minutes: usize,
}

const SECRET: &str = "providers.microsoft.client_secret";
const SECRET_FILE: &str = "providers.microsoft.client_secret_file";
const CERTIFICATE: &str = "providers.microsoft.certificate_file";

const WITHOUT_PUSHES: &str = "Graph calls only addresses that begin with https://, and neither server.public_url nor providers.microsoft.notification_url does; mailboxes are looked at by the clock";

/// `public_url` is where the world reaches us.
pub(super) fn microsoft(read: &mut Reader, public_url: &str) -> Result<Microsoft, ConfigError> {
    let client_id = optional(read, "providers.microsoft.client_id", "the id of an app")?;
    let client_secret = client_secret(read, SECRET, SECRET_FILE)?;
    let certificate = secret_file(
        read,
        CERTIFICATE,
        "a certificate and its private key, both in PEM, one after the other",
        |text| Certificate::parse(text).err().map(|why| why.to_string()),
    )?;
    if client_secret.is_some() && certificate.is_some() {
        return Err(ConfigError::new(format!("`{SECRET}` and `{CERTIFICATE}` are both given; keep one of them")));
    }
    let settings = MicrosoftSettings {
        authority_url: url(read, "providers.microsoft.authority_url")?,
        authority: authority(read)?,
        graph_url: url(read, "providers.microsoft.graph_url")?,
        client_id,
        client_secret,
        certificate,
        push: None,
    };
    let push = push(read, public_url, &settings)?;
    Ok(Microsoft {
        settings: MicrosoftSettings { push, ..settings },
        rates: rates(read, rates::MICROSOFT)?,
        mailbox_requests_per_10_minutes: read
            .count("providers.microsoft.mailbox_requests_per_10_minutes", 0..=1_000_000_000)?,
    })
}

impl Microsoft {
    /// What is set up, and the first thing that is missing for what was begun.
    pub fn standing(&self) -> Result<String, String> {
        let MicrosoftSettings { client_id, client_secret, certificate, push, .. } = &self.settings;
        let by = match (client_id, client_secret, certificate) {
            (None, None, None) => return Ok("not set up; docs/providers/outlook.md tells how".to_owned()),
            (None, ..) => {
                return Err(
                    "there is a secret or a certificate and no id; set providers.microsoft.client_id".to_owned()
                );
            }
            (Some(_), None, None) => {
                return Err("there is a client_id, and nothing that says that it is us; set providers.microsoft.client_secret_file or providers.microsoft.certificate_file".to_owned());
            }
            (Some(_), Some(_), _) => "an app with a secret",
            (Some(_), None, Some(_)) => "an app with a certificate",
        };
        match push {
            Some(_) => Ok(format!("{by}, pushes")),
            None => Ok(format!("{by}, no pushes: {WITHOUT_PUSHES}")),
        }
    }

    /// What people should know who have set up an app, and are not pushed to.
    pub fn lacks_pushes(&self) -> Option<&'static str> {
        (self.settings.has_client() && self.settings.push.is_none()).then_some(WITHOUT_PUSHES)
    }
}

fn authority(read: &mut Reader) -> Result<String, ConfigError> {
    const KEY: &str = "providers.microsoft.authority";
    const WANTS: &str = "common, organizations, consumers, or a directory by its id or one of its domains";
    let Some((text, origin)) = read.text(KEY, WANTS)? else {
        return Err(refuse(KEY, "default", &format!("wants {WANTS}")));
    };
    let text = text.trim().to_owned();
    if !["common", "organizations", "consumers"].contains(&&*text) && !is_directory(&text) {
        return Err(refuse(KEY, &origin, &format!("wants {WANTS}, not {}", text.escape_debug())));
    }
    read.show(KEY, text.clone(), &origin);
    Ok(text)
}

/// Graph sends what happens to addresses with https:// only; a simulated one is less strict.
fn push(read: &mut Reader, public_url: &str, settings: &MicrosoftSettings) -> Result<Option<GraphPush>, ConfigError> {
    const KEY: &str = "providers.microsoft.notification_url";
    let notification_url = if read.is_given(KEY) {
        url(read, KEY)?
    } else {
        read.show(KEY, "server.public_url followed by /v1/hooks/graph", &"default");
        format!("{public_url}/v1/hooks/graph")
    };
    let is_taken = notification_url.starts_with("https://") || settings.graph_url.starts_with("http://");
    let lifecycle_url = format!("{notification_url}/lifecycle");
    Ok((settings.has_client() && is_taken).then_some(GraphPush { notification_url, lifecycle_url }))
}
