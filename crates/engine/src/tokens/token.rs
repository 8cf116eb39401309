//! One token, and for how long it is used.

use std::time::Duration;

use domain::Secret;
use domain::connector::Grant;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

/// A token is used for no longer, whatever its provider says.
const LONGEST_USE: SignedDuration = SignedDuration::from_mins(50);

/// One that ends sooner than this may end on its way. Of a short life it is half.
const MARGIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Token {
    pub token: Secret<String>,
    use_until: Timestamp,
    /// Whom it opens, see [`super::credential::opened`]: a mailbox may be another's from one look to the next.
    user: String,
}

#[derive(Deserialize)]
struct Stored {
    token: String,
    use_until: Timestamp,
    /// One from before this was written down is nobody's.
    #[serde(default)]
    user: String,
}

impl Token {
    /// `asked_at` is when it was asked for: it cannot be older.
    pub fn new(grant: &Grant, user: String, asked_at: Timestamp) -> Self {
        let life = grant.expires_in.saturating_sub(MARGIN.min(grant.expires_in / 2));
        let life = SignedDuration::try_from(life).unwrap_or(LONGEST_USE).min(LONGEST_USE);
        Self { token: grant.token.clone(), use_until: asked_at.checked_add(life).unwrap_or(asked_at), user }
    }

    pub fn is_of(&self, user: &str) -> bool {
        self.user == user
    }

    pub fn is_good(&self, now: Timestamp, refused: Option<&Secret<String>>) -> bool {
        now < self.use_until && refused.is_none_or(|refused| refused.expose() != self.token.expose())
    }

    /// As it is sealed.
    pub fn write(&self) -> Secret<String> {
        let Self { token, use_until, user } = self;
        Secret::new(json!({"token": token.expose(), "use_until": use_until, "user": user}).to_string())
    }

    pub fn read(bytes: &Secret<Vec<u8>>) -> Option<Self> {
        let Stored { token, use_until, user } = serde_json::from_slice(bytes.expose()).ok()?;
        Some(Self { token: Secret::new(token), use_until, user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_for_fifty_minutes_at_most_and_not_in_its_last_one() {
        let asked: Timestamp = "2026-02-01T12:00:00Z".parse().unwrap();
        let life = |seconds| {
            let grant =
                Grant { token: Secret::new("t".into()), expires_in: Duration::from_secs(seconds), secret: None };
            let token = Token::new(&grant, "ann@corp.example".to_owned(), asked);
            let again = Token::read(&Secret::new(token.write().expose().clone().into_bytes())).unwrap();
            assert_eq!(again.use_until, token.use_until);
            assert!(again.is_of("ann@corp.example") && !again.is_of("bob@corp.example"));
            token.use_until.duration_since(asked).as_secs()
        };

        assert_eq!((life(3600), life(86_400), life(1000)), (3000, 3000, 940));
        assert_eq!((life(60), life(2), life(0)), (30, 1, 0));
    }

    #[test]
    fn a_refused_one_is_not_good_whatever_its_time() {
        let now: Timestamp = "2026-02-01T12:00:00Z".parse().unwrap();
        let grant = Grant { token: Secret::new("t".into()), expires_in: Duration::from_secs(600), secret: None };
        let token = Token::new(&grant, String::new(), now);

        assert!(token.is_good(now, None) && token.is_good(now, Some(&Secret::new("other".into()))));
        assert!(!token.is_good(now, Some(&Secret::new("t".into()))));
        assert!(!token.is_good(now + SignedDuration::from_secs(541), None));
    }
}
