//! Providers with OAuth consent: their routes and texts.

use domain::Provider;

/// A provider whose mailboxes are connected by consent in a browser.
#[derive(Debug)]
pub struct ConsentSite {
    pub provider: Provider,
    /// Name for people.
    pub name: &'static str,
    /// Path of the route that starts the consent.
    pub start: &'static str,
    /// Path that the provider redirects to, as registered in its console.
    pub callback: &'static str,
    pub not_configured: &'static str,
    /// What to do when the provider gave no refresh token.
    pub no_refresh_token: &'static str,
}

pub const GOOGLE: ConsentSite = ConsentSite {
    provider: Provider::Gmail,
    name: "Google",
    start: "/v1/oauth/google/start",
    callback: "/v1/oauth/google/callback",
    not_configured: "Google is not configured on this server: set providers.google.client_id and client_secret",
    no_refresh_token: "Google granted no lasting access. Remove this app in your Google account under third-party access, then start again.",
};

pub const MICROSOFT: ConsentSite = ConsentSite {
    provider: Provider::Outlook,
    name: "Microsoft",
    start: "/v1/oauth/microsoft/start",
    callback: "/v1/oauth/microsoft/callback",
    not_configured: "Microsoft is not configured on this server: set providers.microsoft.client_id, and client_secret or certificate_file",
    no_refresh_token: "Microsoft granted no lasting access. Your administrator may not allow it; otherwise start again.",
};

impl ConsentSite {
    /// Returns `None` for providers without consent.
    pub fn of(provider: Provider) -> Option<&'static Self> {
        match provider {
            Provider::Gmail => Some(&GOOGLE),
            Provider::Outlook => Some(&MICROSOFT),
            Provider::Files | Provider::Imap => None,
        }
    }
}
