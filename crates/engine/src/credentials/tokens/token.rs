//! An access token, and for how long it is used.

use std::time::Duration;

use domain::Secret;
use domain::connector::TokenGrant;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

/// A token is used for at most this time, whatever its provider says.
const MAX_TOKEN_AGE: SignedDuration = SignedDuration::from_mins(50);

/// A token that expires sooner than this might expire within a call; of a short life it is half.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct AccessToken {
    pub token: Secret<String>,
    use_until: Timestamp,
    /// The impersonated user, see [`super::credential::impersonated_user`]: a mailbox may get another user at any time.
    user: String,
}

#[derive(Deserialize)]
struct StoredToken {
    token: String,
    use_until: Timestamp,
    /// Empty for a token from before this field existed, which then is not used.
    #[serde(default)]
    user: String,
}

impl AccessToken {
    /// Creates a token that was requested at `asked_at`: it cannot be older.
    pub fn new(grant: &TokenGrant, user: String, asked_at: Timestamp) -> Self {
        let life = grant.expires_in.saturating_sub(EXPIRY_MARGIN.min(grant.expires_in / 2));
        let life = SignedDuration::try_from(life).unwrap_or(MAX_TOKEN_AGE).min(MAX_TOKEN_AGE);
        Self { token: grant.token.clone(), use_until: asked_at.checked_add(life).unwrap_or(asked_at), user }
    }

    pub fn is_of(&self, user: &str) -> bool {
        self.user == user
    }

    pub fn is_valid(&self, now: Timestamp, refused: Option<&Secret<String>>) -> bool {
        now < self.use_until && refused.is_none_or(|refused| refused.expose() != self.token.expose())
    }

    /// Returns the JSON that is sealed.
    pub fn to_json(&self) -> Secret<String> {
        let Self { token, use_until, user } = self;
        Secret::new(json!({"token": token.expose(), "use_until": use_until, "user": user}).to_string())
    }

    pub fn from_json(bytes: &Secret<Vec<u8>>) -> Option<Self> {
        let StoredToken { token, use_until, user } = serde_json::from_slice(bytes.expose()).ok()?;
        Some(Self { token: Secret::new(token), use_until, user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(seconds: u64) -> i64 {
        let asked: Timestamp = "2026-02-01T12:00:00Z".parse().unwrap();
        let grant =
            TokenGrant { token: Secret::new("t".into()), expires_in: Duration::from_secs(seconds), secret: None };
        let token = AccessToken::new(&grant, "ann@corp.example".to_owned(), asked);
        let again = AccessToken::from_json(&Secret::new(token.to_json().expose().clone().into_bytes())).unwrap();
        assert_eq!(again.use_until, token.use_until);
        assert!(again.is_of("ann@corp.example") && !again.is_of("bob@corp.example"));
        token.use_until.duration_since(asked).as_secs()
    }

    #[test]
    fn token_is_used_for_at_most_fifty_minutes() {
        assert_eq!((lifetime(3600), lifetime(86_400), lifetime(1000)), (3000, 3000, 940));
        assert_eq!((lifetime(60), lifetime(2), lifetime(0)), (30, 1, 0));
    }

    #[test]
    fn refused_token_is_not_valid() {
        let now: Timestamp = "2026-02-01T12:00:00Z".parse().unwrap();
        let grant = TokenGrant { token: Secret::new("t".into()), expires_in: Duration::from_secs(600), secret: None };
        let token = AccessToken::new(&grant, String::new(), now);

        assert!(token.is_valid(now, None) && token.is_valid(now, Some(&Secret::new("other".into()))));
        assert!(!token.is_valid(now, Some(&Secret::new("t".into()))));
        assert!(!token.is_valid(now + SignedDuration::from_secs(541), None));
    }
}
