//! Verifies tokens with the published keys.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rsa::PublicKeyComponents;
use ring::signature::RSA_PKCS1_2048_8192_SHA256;
use serde_json::Value;

/// Returns the claims of a token that one of these keys has signed.
pub fn open(token: &str, certs: &Value) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    let key = certs["keys"].as_array()?.iter().find(|key| key["kid"] == header["kid"])?;
    let [n, e] = ["n", "e"].map(|part| URL_SAFE_NO_PAD.decode(key[part].as_str().unwrap()).unwrap());
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    PublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &signature).ok()?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}
