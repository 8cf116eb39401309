//! What all of Google's services have in common: where they are, and who we are there.

mod oauth;
mod service_account;

use domain::Secret;

pub use oauth::GoogleOAuth;
pub use service_account::{NotAServiceAccount, ServiceAccount};

/// Where Google is, and as whom we call it. The defaults are Google's own addresses, and nobody.
#[derive(Debug, Clone)]
pub struct GoogleSettings {
    /// Where people are asked for their consent.
    pub auth_url: String,
    /// Where tokens come from; `revoke` is beside it.
    pub token_url: String,
    /// The base before `/gmail/v1` and `/batch/gmail/v1`.
    pub api_url: String,
    /// The base before `/admin/directory/v1`.
    pub directory_url: String,
    /// The keys that Google signs with.
    pub jwks_url: String,
    pub client_id: Option<String>,
    pub client_secret: Option<Secret<String>>,
    /// The text of a service account's key file, which opens every mailbox of a domain that allows it.
    pub service_account: Option<Secret<String>>,
    /// `projects/P/topics/T`: where changes are told. Without it nobody tells, and mailboxes are looked at by the clock.
    pub topic: Option<String>,
    /// Quota units of a user; nothing: as many as one likes.
    pub user_units_per_minute: Option<u32>,
}

impl GoogleSettings {
    /// Messages that are read at once: what a user may have in two seconds, so that a batch never takes the quota of those
    /// that follow.
    pub fn largest_batch(&self) -> usize {
        const UNITS: u32 = 20;
        self.user_units_per_minute.map_or(usize::MAX, |units| (units / 30 / UNITS) as usize)
    }
}

impl Default for GoogleSettings {
    fn default() -> Self {
        Self {
            auth_url: "https://accounts.google.com/o/oauth2/v2/auth".to_owned(),
            token_url: "https://oauth2.googleapis.com/token".to_owned(),
            api_url: "https://gmail.googleapis.com".to_owned(),
            directory_url: "https://admin.googleapis.com".to_owned(),
            jwks_url: "https://www.googleapis.com/oauth2/v3/certs".to_owned(),
            client_id: None,
            client_secret: None,
            service_account: None,
            topic: None,
            user_units_per_minute: Some(6_000),
        }
    }
}
