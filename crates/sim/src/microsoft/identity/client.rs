//! Registered OAuth clients, and the one that tests use.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::signing;

pub const CLIENT_ID: &str = "5e0c2d4a-6f1b-4c38-9a7e-0d1f2b3c4d5e";
pub const CLIENT_SECRET: &str = "sim-secret";

/// The test client's certificate and key. They protect nothing: both are in the repository.
const CERTIFICATE: &[u8] = include_bytes!("../../keys/client-certificate.der");
const CERTIFICATE_KEY: &[u8] = include_bytes!("../../keys/client-certificate-key.der");

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MicrosoftClient {
    pub id: String,
    #[serde(default)]
    pub secret: Option<String>,
    #[serde(default)]
    pub secret_expired: bool,
    /// A PEM certificate with an RSA key.
    #[serde(default)]
    pub certificate: Option<String>,
    /// Exact redirect URIs; those on a loopback host need no registration.
    #[serde(default)]
    pub redirect_uris: Vec<String>,
}

impl MicrosoftClient {
    pub fn for_tests() -> Self {
        Self {
            id: CLIENT_ID.to_owned(),
            secret: Some(CLIENT_SECRET.to_owned()),
            secret_expired: false,
            certificate: Some(certificate_pem()),
            redirect_uris: Vec::new(),
        }
    }
}

/// Returns the test client's certificate.
pub fn certificate_pem() -> String {
    signing::pem("CERTIFICATE", CERTIFICATE)
}

pub fn certificate_key_pem() -> String {
    signing::pem("PRIVATE KEY", CERTIFICATE_KEY)
}

/// Returns the certificate's SHA-256, as in `x5t#S256`.
pub fn certificate_thumbprint() -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, CERTIFICATE))
}

/// Signs claims with the test client's key: with PS256 and `x5t#S256`, or in the old form with RS256 and `x5t`.
///
/// # Panics
///
/// Never: the key is part of the program.
pub fn sign_as_client(claims: &Value, is_old_form: bool) -> String {
    let key = signing::read(CERTIFICATE_KEY);
    let header = if is_old_form {
        let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, CERTIFICATE));
        json!({"alg": "RS256", "typ": "JWT", "x5t": thumbprint})
    } else {
        json!({"alg": "PS256", "typ": "JWT", "x5t#S256": certificate_thumbprint()})
    };
    let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    let mut signature = vec![0; key.public().modulus_len()];
    let random = SystemRandom::new();
    let done = if is_old_form {
        key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature)
    } else {
        key.sign(&RSA_PSS_SHA256, &random, signed.as_bytes(), &mut signature)
    };
    done.expect("the signature has the length of the key");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}
