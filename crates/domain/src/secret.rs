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

    /// The value itself, for the one place that needs it.
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

/// What a stored secret is for. One that was stored as one kind cannot be read as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// Of an account at a mail server.
    Password,
    /// What an owner's consent gave us, good until it is taken back.
    RefreshToken,
    /// Good for an hour; stored so that instances need not ask one by one.
    AccessToken,
    /// What a request was answered that showed a secret, for when it comes again.
    Answer,
    /// What webhooks are signed with.
    WebhookSigning,
}

impl SecretKind {
    pub const ALL: [Self; 5] =
        [Self::Password, Self::RefreshToken, Self::AccessToken, Self::Answer, Self::WebhookSigning];

    /// Stored in rows, and part of what a ciphertext is bound to.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::RefreshToken => "refresh_token",
            Self::AccessToken => "access_token",
            Self::Answer => "answer",
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
    fn a_secret_prints_as_stars_and_is_read_only_on_purpose() {
        let secret = Secret::new("hunter2".to_owned());

        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
        assert_eq!(*secret.expose(), "hunter2");
    }

    #[test]
    fn a_secret_is_wiped_when_it_goes() {
        static WIPED: AtomicBool = AtomicBool::new(false);
        struct Tells;
        impl Zeroize for Tells {
            fn zeroize(&mut self) {
                WIPED.store(true, Ordering::SeqCst);
            }
        }

        drop(Secret::new(Tells));

        assert!(WIPED.load(Ordering::SeqCst));
    }
}
