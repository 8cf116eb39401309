//! The interface to a provider's consent page in a browser (OAuth 2.0 authorization code flow with PKCE).

use std::fmt;

use crate::connector::ConnectorFuture;
use crate::{Provider, Secret};

/// The authorization code flow of one provider.
pub trait ConsentFlow: Send + Sync + fmt::Debug {
    fn provider(&self) -> Provider;

    /// Returns the URL of the provider's consent page.
    fn authorization_url(&self, request: &AuthorizationRequest<'_>) -> String;

    /// Exchanges an authorization code for tokens. A code can be used once.
    fn exchange<'a>(
        &'a self,
        code: &'a Secret<String>,
        verifier: &'a Secret<String>,
        redirect_uri: &'a str,
    ) -> ConnectorFuture<'a, ConsentGrant>;

    /// Revokes this token and the consent it belongs to, where the provider can.
    fn revoke<'a>(&'a self, token: &'a Secret<String>) -> ConnectorFuture<'a, ()>;

    /// Returns the URL where a directory's administrator admits our app; the redirect back carries `state`. `None`: the
    /// provider has no such page.
    fn admin_consent_url(&self, _directory: &str, _redirect_uri: &str, _state: &str) -> Option<String> {
        None
    }

    /// Returns the page on which a person withdraws their consent, where Mailroom cannot revoke it.
    fn revocation_page(&self) -> Option<&'static str> {
        None
    }
}

/// The parameters of an authorization URL.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizationRequest<'a> {
    /// Where the provider sends the person back to.
    pub redirect_uri: &'a str,
    /// An opaque value that the provider returns unchanged.
    pub state: &'a str,
    /// The PKCE challenge: the SHA-256 of the verifier in URL-safe Base64.
    pub challenge: &'a str,
    /// The address of the mailbox to connect, if it is known (OAuth's `login_hint`).
    pub address: Option<&'a str>,
}

/// The result of a consent.
#[derive(Debug)]
pub struct ConsentGrant {
    /// The address of the mailbox as the provider reports it, if it does.
    pub address: Option<String>,
    /// The refresh token. `None`: the one granted before is still valid.
    pub secret: Option<Secret<String>>,
    /// The first access token.
    pub token: Secret<String>,
    /// Required permissions that were not granted, in words for people.
    pub missing: Vec<&'static str>,
}
