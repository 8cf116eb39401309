//! What Mailroom asks of a provider that lets people say yes in a browser (OAuth 2.0 with PKCE).

use std::fmt;

use crate::connector::Answer;
use crate::{Provider, Secret};

/// A provider's side of it.
pub trait Consent: Send + Sync + fmt::Debug {
    fn provider(&self) -> Provider;

    /// Where a person is sent to say yes.
    fn ask(&self, question: &Question<'_>) -> String;

    /// What a code is good for. It is good once.
    fn exchange<'a>(
        &'a self,
        code: &'a Secret<String>,
        verifier: &'a Secret<String>,
        redirect_uri: &'a str,
    ) -> Answer<'a, Consented>;

    /// The provider forgets this token and what it was given for, if it can be told to.
    fn revoke<'a>(&'a self, token: &'a Secret<String>) -> Answer<'a, ()>;

    /// Where a person takes a consent back that nobody else can end.
    fn taken_back_at(&self) -> Option<&'static str> {
        None
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Where the person comes back to.
    pub redirect_uri: &'a str,
    /// Comes back as it is.
    pub state: &'a str,
    /// The SHA-256 of the verifier, in Base64 for URLs.
    pub challenge: &'a str,
    /// Whose mailbox is wanted, if that is known.
    pub address: Option<&'a str>,
}

/// What somebody said yes to.
#[derive(Debug)]
pub struct Consented {
    /// Whose mailbox it is, as the provider says, if it does.
    pub address: Option<String>,
    /// What opens it from now on. `None`: what was given before still does.
    pub secret: Option<Secret<String>>,
    /// What it is called with for now.
    pub token: Secret<String>,
    /// What was not granted of what we cannot do without, in words for people.
    pub missing: Vec<&'static str>,
}
