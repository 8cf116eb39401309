//! What opens a door: API keys and tokens of callers, secrets and access tokens of mailboxes, signed links.

pub mod access;
pub mod api_keys;
pub mod consent;
pub mod grant_leases;
pub mod oidc;
pub mod secrets;
pub mod signed_urls;
pub mod tokens;
