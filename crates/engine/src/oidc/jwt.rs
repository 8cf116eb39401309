//! Signed tokens (RFC 7515, 7517, 7519), as far as we need them: three pieces of Base64, a signature that *ring* checks,
//! and claims. The algorithm is ours to say, never the token's: that is what attacks on tokens begin with.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// Far longer than tokens are; reading a head costs more than refusing it.
const LONGEST: usize = 16 << 10;

/// How a token must be signed: with a key whose other half only the issuer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    pub const ALL: [(&'static str, Self); 7] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    fn as_str(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Malformed,
    WrongAlgorithm,
    UnknownKey,
    WrongSignature,
}

/// What a token says of itself; nothing of it is believed.
#[derive(Debug, Deserialize)]
pub struct Head {
    alg: String,
    pub kid: Option<String>,
    /// What one has to understand to understand the token. We understand nothing of that kind.
    crit: Option<Value>,
}

/// A token in its pieces, signed as it must be or not.
#[derive(Debug)]
pub struct Token<'a> {
    pub head: Head,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub fn parse(text: &'a str, algorithm: Algorithm) -> Result<Self, Refusal> {
        let pieces = text.rsplit_once('.').filter(|_| text.len() <= LONGEST);
        let (signed, signature) = pieces.ok_or(Refusal::Malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(Refusal::Malformed)?;
        if claims.contains('.') {
            return Err(Refusal::Malformed); // five pieces are an encrypted one
        }
        let head: Head = serde_json::from_slice(&decode(head)?).map_err(|_| Refusal::Malformed)?;
        if head.alg != algorithm.as_str() || head.crit.is_some() {
            return Err(Refusal::WrongAlgorithm);
        }
        Ok(Self { head, signed, signature: decode(signature)? })
    }

    /// Its claims, if one of these keys signed it.
    pub fn verify(&self, algorithm: Algorithm, keys: &Keys) -> Result<Value, Refusal> {
        let mut candidates = keys.named(self.head.kid.as_deref()).peekable();
        if candidates.peek().is_none() {
            return Err(Refusal::UnknownKey);
        }
        if !candidates.any(|key| key.signed(algorithm, self.signed.as_bytes(), &self.signature)) {
            return Err(Refusal::WrongSignature);
        }
        let (_, claims) = self.signed.split_once('.').ok_or(Refusal::Malformed)?;
        serde_json::from_slice(&decode(claims)?).map_err(|_| Refusal::Malformed)
    }
}

fn decode(text: &str) -> Result<Vec<u8>, Refusal> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| Refusal::Malformed)
}

/// The public keys of an issuer that fit the algorithm.
#[derive(Debug, Default)]
pub struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// Of a curve, as *ring* takes it.
    Point(Vec<u8>),
}

#[derive(Debug, Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    /// Of a JWK set. Keys that we cannot use are left out: others may.
    pub fn read(set: &Value, algorithm: Algorithm) -> Self {
        let keys = set["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        let keys = keys.iter().filter_map(|key| Jwk::deserialize(key).ok());
        Self(keys.filter_map(|key| key.usable(algorithm)).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, id: Option<&str>) -> bool {
        self.named(id).next().is_some()
    }

    /// All of them, for a token that does not say which.
    fn named(&self, id: Option<&str>) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |key| id.is_none() || key.id.as_deref() == id)
    }
}

impl Jwk {
    fn usable(self, algorithm: Algorithm) -> Option<Key> {
        let is_for_this = self.alg.as_deref().is_none_or(|alg| alg == algorithm.as_str());
        let is_for_signatures = self.usage.as_deref().is_none_or(|usage| usage == "sig");
        if !(is_for_this && is_for_signatures) {
            return None;
        }
        let bytes = |text: &Option<String>| decode(text.as_deref()?).ok();
        use Algorithm as A;
        let material = match (algorithm, self.kty.as_str(), self.crv.as_deref()) {
            (A::Rs256 | A::Rs384 | A::Rs512 | A::Ps256, "RSA", _) => {
                Material::Rsa { n: bytes(&self.n)?, e: bytes(&self.e)? }
            }
            (A::Es256, "EC", Some("P-256")) | (A::Es384, "EC", Some("P-384")) => {
                let uncompressed = [vec![4], bytes(&self.x)?, bytes(&self.y)?];
                Material::Point(uncompressed.concat())
            }
            (A::EdDsa, "OKP", Some("Ed25519")) => Material::Point(bytes(&self.x)?),
            _ => return None,
        };
        Some(Key { id: self.kid, material })
    }
}

impl Key {
    fn signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let rsa = match algorithm {
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            _ => &signature::RSA_PSS_2048_8192_SHA256,
        };
        let curve: &dyn signature::VerificationAlgorithm = match algorithm {
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            _ => &signature::ED25519,
        };
        match &self.material {
            Material::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(rsa, message, signature).is_ok(),
            Material::Point(point) => UnparsedPublicKey::new(curve, point).verify(message, signature).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Appendix A.2 and A.3 of RFC 7515, and A.4 of RFC 8037.
    const RS256: (&str, &str) = (
        r#"{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}"#,
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
    );
    const ES256: (&str, &str) = (
        r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#,
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    );

    fn claims(algorithm: Algorithm, (key, token): (&str, &str)) -> Result<Value, Refusal> {
        let key: Value = serde_json::from_str(key).unwrap();
        Token::parse(token, algorithm)?.verify(algorithm, &Keys::read(&json!({"keys": [key]}), algorithm))
    }

    #[test]
    fn the_tokens_of_the_standards_are_understood() {
        assert_eq!(claims(Algorithm::Rs256, RS256).unwrap()["iss"], "joe");
        assert_eq!(claims(Algorithm::Es256, ES256).unwrap()["exp"], 1_300_819_380);
        let key = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let text = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert_eq!(
            claims(Algorithm::EdDsa, (key, text)),
            Err(Refusal::Malformed),
            "signed, though its claims are text"
        );
    }

    #[test]
    fn the_token_does_not_choose_its_algorithm() {
        let head = |head: Value| URL_SAFE_NO_PAD.encode(head.to_string());
        let rest = RS256.1.split_once('.').unwrap().1;
        for alg in ["none", "None", "HS256", "rs256", "RS384", "ES256", ""] {
            let token = format!("{}.{rest}", head(json!({"alg": alg})));
            assert_eq!(claims(Algorithm::Rs256, (RS256.0, &token)), Err(Refusal::WrongAlgorithm), "{alg}");
        }
        assert_eq!(claims(Algorithm::Es256, RS256), Err(Refusal::WrongAlgorithm));
        let critical = format!("{}.{rest}", head(json!({"alg": "RS256", "crit": ["exp"]})));
        assert_eq!(claims(Algorithm::Rs256, (RS256.0, &critical)), Err(Refusal::WrongAlgorithm));
        assert_eq!(claims(Algorithm::Rs256, (ES256.0, RS256.1)), Err(Refusal::UnknownKey), "a key of another kind");
    }

    #[test]
    fn what_was_altered_or_cut_is_refused() {
        let (signed, signature) = ES256.1.rsplit_once('.').unwrap();
        let (head, _) = signed.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(json!({"iss": "eve"}).to_string());
        for token in [format!("{head}.{other}.{signature}"), format!("{signed}."), format!("{signed}.AAAA")] {
            assert_eq!(claims(Algorithm::Es256, (ES256.0, &token)), Err(Refusal::WrongSignature), "{token}");
        }
        let long = format!("{signed}{}.{signature}", "A".repeat(LONGEST));
        for token in ["", ".", "..", "a.b", "a.b.c", signed, &format!("{}.x", ES256.1), &long, "é.é.é"] {
            assert!(claims(Algorithm::Es256, (ES256.0, token)).is_err(), "{token}");
        }
    }
}
