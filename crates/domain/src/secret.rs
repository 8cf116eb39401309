//! Secret values and the kinds of stored secrets.

use std::fmt;

pub use zeroize::Zeroize;

/// A value that must not reach a log, an error or a screen: it prints as `***`, reading it is easy to grep, and its bytes
/// are wiped when it goes. It cannot be serialized, on purpose.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value itself, for the one place that needs it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T: Zeroize> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The purpose of a stored secret. A secret stored as one kind cannot be read as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// The password of an account at a mail server.
    Password,
    /// An OAuth refresh token, valid until the owner withdraws their consent.
    RefreshToken,
    /// An OAuth access token, valid for an hour; stored so that processes share it.
    AccessToken,
    /// The response to a request with an idempotency key that contained a secret, for its replay.
    StoredReply,
    /// The key that webhooks are signed with.
    WebhookSigning,
}

impl SecretKind {
    pub const ALL: [Self; 5] =
        [Self::Password, Self::RefreshToken, Self::AccessToken, Self::StoredReply, Self::WebhookSigning];

    /// Returns the name that is stored in rows and authenticated with the ciphertext.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::RefreshToken => "refresh_token",
            Self::AccessToken => "access_token",
            Self::StoredReply => "answer",
            Self::WebhookSigning => "webhook_signing",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn secret_prints_as_stars() {
        let secret = Secret::new("hunter2".to_owned());

        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
        assert_eq!(*secret.expose(), "hunter2");
    }

    #[test]
    fn dropped_secret_is_wiped() {
        static WIPED: AtomicBool = AtomicBool::new(false);
        struct WipeProbe;
        impl Zeroize for WipeProbe {
            fn zeroize(&mut self) {
                WIPED.store(true, Ordering::SeqCst);
            }
        }

        drop(Secret::new(WipeProbe));

        assert!(WIPED.load(Ordering::SeqCst));
    }
}
