//! The only service account and its key.

use ring::rsa::KeyPair;
use serde_json::{Value, json};

use crate::signing::{components, open, pem, read, sign};

const SERVICE_ACCOUNT: &[u8] = include_bytes!("../../keys/service-account.der");

/// The key of the only service account.
#[derive(Debug)]
pub struct ServiceAccount(KeyPair);

impl Default for ServiceAccount {
    fn default() -> Self {
        Self(read(SERVICE_ACCOUNT))
    }
}

impl ServiceAccount {
    pub const EMAIL: &str = "mailroom@mailroom-test.iam.gserviceaccount.com";
    pub const KEY_ID: &str = "sim-service-account-key";
    pub const CLIENT_ID: &str = "100000000000000000001";

    /// Returns the key file that Google's console offers for download.
    pub fn key_file(url: &str) -> Value {
        json!({
            "type": "service_account",
            "project_id": "mailroom-test",
            "private_key_id": Self::KEY_ID,
            "private_key": pem("PRIVATE KEY", SERVICE_ACCOUNT),
            "client_email": Self::EMAIL,
            "client_id": Self::CLIENT_ID,
            "auth_uri": format!("{url}/o/oauth2/v2/auth"),
            "token_uri": format!("{url}/token"),
        })
    }

    pub fn sign(&self, claims: &Value) -> String {
        sign(&self.0, Self::KEY_ID, claims)
    }

    /// Returns the claims of a token signed with this key.
    pub fn open(&self, token: &str) -> Option<Value> {
        let public = components(&self.0);
        open(token, Self::KEY_ID, &public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing::SigningKeys;

    #[test]
    fn altered_assertion_is_refused() {
        let account = ServiceAccount::default();
        let token = account.sign(&json!({"sub": "ann@x.test"}));

        assert_eq!(account.open(&token), Some(json!({"sub": "ann@x.test"})));
        let mut altered = token.clone().into_bytes();
        altered[60] ^= 1;
        assert_eq!(account.open(&String::from_utf8(altered).unwrap()), None);
        assert_eq!(account.open(&SigningKeys::default().sign(&json!({}))), None);
    }
}
