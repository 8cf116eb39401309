//! Those whose people say yes in a browser, and what each of them is called.

use domain::Provider;

#[derive(Debug)]
pub struct Site {
    pub provider: Provider,
    /// For people.
    pub name: &'static str,
    /// Where a person begins.
    pub start: &'static str,
    /// Where the provider sends people back to; it is told so in its console.
    pub callback: &'static str,
    pub not_set_up: &'static str,
    /// What to do when it gave nothing that lasts.
    pub gave_nothing: &'static str,
}

pub const GOOGLE: Site = Site {
    provider: Provider::Gmail,
    name: "Google",
    start: "/v1/oauth/google/start",
    callback: "/v1/oauth/google/callback",
    not_set_up: "this Mailroom is not set up for Google: it needs providers.google.client_id and client_secret",
    gave_nothing: "Google gave nothing that lasts. Remove this app in your Google account under third-party access, then begin again.",
};

pub const MICROSOFT: Site = Site {
    provider: Provider::Outlook,
    name: "Microsoft",
    start: "/v1/oauth/microsoft/start",
    callback: "/v1/oauth/microsoft/callback",
    not_set_up: "this Mailroom is not set up for Microsoft: it needs providers.microsoft.client_id, and client_secret or certificate_file",
    gave_nothing: "Microsoft gave nothing that lasts. Its administrator may not allow that; otherwise begin again.",
};

impl Site {
    /// `None`: nobody says yes to us there.
    pub fn of(provider: Provider) -> Option<&'static Self> {
        match provider {
            Provider::Gmail => Some(&GOOGLE),
            Provider::Outlook => Some(&MICROSOFT),
            Provider::Files | Provider::Scripted | Provider::Imap => None,
        }
    }
}
