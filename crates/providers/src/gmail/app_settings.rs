//! The settings of our app at Google, for mail and for directories.

use domain::Secret;

/// Google's endpoints and our credentials there. The defaults are Google's own endpoints and no credentials.
#[derive(Debug, Clone)]
pub struct GoogleSettings {
    /// Authorization endpoint, where people give their consent.
    pub auth_url: String,
    /// Token endpoint; `revoke` is beside it.
    pub token_url: String,
    /// URL before `/gmail/v1` and `/batch/gmail/v1`.
    pub api_url: String,
    /// URL before `/admin/directory/v1`.
    pub directory_url: String,
    /// Public keys of Google's signatures.
    pub jwks_url: String,
    pub client_id: Option<String>,
    pub client_secret: Option<Secret<String>>,
    /// Text of a service account's key file; domain-wide delegation lets it open every mailbox of a domain.
    pub service_account: Option<Secret<String>>,
    /// Pub/Sub topic of change notifications, `projects/P/topics/T`. Without one, mailboxes are polled.
    pub topic: Option<String>,
    /// Quota units per user and minute; `None` for no limit.
    pub user_units_per_minute: Option<u32>,
}

impl GoogleSettings {
    /// Returns how many messages a batch may have: the quota of two seconds, so that a batch never uses up that of the next.
    pub fn max_batch_size(&self) -> usize {
        const UNITS_PER_MESSAGE: u32 = 20;
        self.user_units_per_minute.map_or(usize::MAX, |units| (units / 30 / UNITS_PER_MESSAGE) as usize)
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
