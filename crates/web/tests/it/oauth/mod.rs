//! Owners connect their mailboxes in a browser or by a refresh token, against a simulated Google and Microsoft.

mod browser;
mod callbacks;
mod consent;
mod consent_app;
mod microsoft;
mod provider_site;
mod refresh_tokens;
