//! A client certificate instead of a client secret, and the assertions that its key signs: an assertion is of no use to
//! anybody who reads it later, and the key never leaves this machine.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{Secret, Sha256};
use jiff::Timestamp;
use ring::rsa::KeyPair;
use ring::signature::RSA_PSS_SHA256;
use serde_json::json;

use crate::oauth::signing::{
    ASSERTION_BACKDATE_SECONDS, ASSERTION_LIFETIME_SECONDS, pem_section, random_id, read_key, sign,
};

/// What is wrong with a certificate file, as the end of the sentence "the file …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCertificate(pub &'static str);

#[derive(Debug)]
pub struct Certificate {
    /// SHA-256 of the certificate, by which Microsoft finds it among those of the app.
    thumbprint: String,
    key: KeyPair,
}

impl Certificate {
    pub fn parse(text: &Secret<String>) -> Result<Self, InvalidCertificate> {
        let pem = text.expose();
        if pem.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || pem.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(InvalidCertificate("has a private key with a password; store it without one"));
        }
        if pem.contains("-----BEGIN EC PRIVATE KEY-----") {
            return Err(InvalidCertificate("has a private key that is not an RSA key"));
        }
        let certificate = pem_section(pem, "CERTIFICATE").ok_or(InvalidCertificate("has no certificate in PEM"))?;
        if !pem.contains("PRIVATE KEY-----") {
            return Err(InvalidCertificate("has no private key in PEM beside its certificate"));
        }
        let key =
            read_key(pem).ok_or(InvalidCertificate("has a private key that is not an RSA key of 2048 bits or more"))?;
        // The certificate contains its public key in the key's own encoding.
        let public = key.public().as_ref();
        if !certificate.expose().windows(public.len()).any(|piece| piece == public) {
            return Err(InvalidCertificate("has a private key that is not the certificate's"));
        }
        Ok(Self { thumbprint: URL_SAFE_NO_PAD.encode(Sha256::of(certificate.expose()).0), key })
    }

    /// Signs an assertion that we are this client, for the token endpoint `audience`. Returns `None` if the system has no
    /// random bytes.
    pub fn assertion(&self, client_id: &str, audience: &str, now: Timestamp) -> Option<Secret<String>> {
        let begin = now.as_second() - ASSERTION_BACKDATE_SECONDS;
        let head = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": self.thumbprint});
        let claims = json!({
            "iss": client_id, "sub": client_id, "aud": audience, "jti": random_id()?,
            "nbf": begin, "iat": begin, "exp": begin + ASSERTION_LIFETIME_SECONDS,
        });
        sign(&self.key, &RSA_PSS_SHA256, &head, &claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificate_file_is_explained() {
        assert_eq!(parse_error("hello"), "has no certificate in PEM");
        assert_eq!(parse_error(&pem("PRIVATE KEY")), "has no certificate in PEM");
        assert_eq!(parse_error(&pem("CERTIFICATE")), "has no private key in PEM beside its certificate");
        assert!(error_with_key("PRIVATE KEY").starts_with("has a private key that is not an RSA key of 2048"));
        assert!(error_with_key("RSA PRIVATE KEY").starts_with("has a private key that is not an RSA key of 2048"));
        assert!(error_with_key("EC PRIVATE KEY").ends_with("is not an RSA key"));
        assert!(error_with_key("ENCRYPTED PRIVATE KEY").contains("password"));
    }

    fn pem(name: &str) -> String {
        format!("-----BEGIN {name}-----\nAAAA\n-----END {name}-----\n")
    }

    fn parse_error(text: &str) -> &'static str {
        Certificate::parse(&Secret::new(text.to_owned())).unwrap_err().0
    }

    fn error_with_key(name: &str) -> &'static str {
        parse_error(&format!("{}{}", pem("CERTIFICATE"), pem(name)))
    }
}
