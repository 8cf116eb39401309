//! JSON Web Tokens (RFC 7515, 7517, 7519), as far as we need them: three pieces of Base64, a signature that *ring*
//! checks, and claims. We choose the algorithm, never the token: that is where attacks on tokens begin.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// The longest accepted token; real ones are far shorter.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The signature algorithm, always asymmetric.
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

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRefusal {
    Malformed,
    WrongAlgorithm,
    UnknownKey,
    WrongSignature,
    /// The keys cannot be fetched now, so the token cannot be checked.
    NoKeys,
    WrongIssuer,
    NoExpiry,
    Expired,
    NotYetValid,
    WrongAudience,
}

/// The header of a token; nothing of it is trusted.
#[derive(Debug, Deserialize)]
pub struct TokenHeader {
    alg: String,
    pub kid: Option<String>,
    /// Critical extensions, of which we support none.
    crit: Option<Value>,
}

/// A parsed token whose signature is not checked yet.
#[derive(Debug)]
pub struct SignedToken<'a> {
    pub head: TokenHeader,
    signed: &'a str,
    signature: Vec<u8>,
}

impl TokenRefusal {
    /// Completes a sentence about the token.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "it is malformed",
            Self::WrongAlgorithm => "it is not signed with the configured algorithm",
            Self::UnknownKey => "it is signed with a key that the issuer does not publish",
            Self::WrongSignature => "its signature is wrong",
            Self::NoKeys => "the keys of the issuer cannot be fetched",
            Self::WrongIssuer => "it was issued by another issuer (iss)",
            Self::NoExpiry => "it has no expiry time (exp)",
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet (nbf)",
            Self::WrongAudience => "it is meant for another audience (aud)",
        }
    }
}

impl<'a> SignedToken<'a> {
    pub fn parse(text: &'a str, algorithm: Algorithm) -> Result<Self, TokenRefusal> {
        let pieces = text.rsplit_once('.').filter(|_| text.len() <= MAX_TOKEN_BYTES);
        let (signed, signature) = pieces.ok_or(TokenRefusal::Malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(TokenRefusal::Malformed)?;
        if claims.contains('.') {
            return Err(TokenRefusal::Malformed); // five pieces are an encrypted one
        }
        let head: TokenHeader = serde_json::from_slice(&decode(head)?).map_err(|_| TokenRefusal::Malformed)?;
        if head.alg != algorithm.as_str() || head.crit.is_some() {
            return Err(TokenRefusal::WrongAlgorithm);
        }
        Ok(Self { head, signed, signature: decode(signature)? })
    }

    /// Returns the claims if one of these keys signed the token.
    pub fn verify(&self, algorithm: Algorithm, keys: &PublicKeys) -> Result<Value, TokenRefusal> {
        let mut matching = keys.candidates(self.head.kid.as_deref()).peekable();
        if matching.peek().is_none() {
            return Err(TokenRefusal::UnknownKey);
        }
        if !matching.any(|key| key.signed(algorithm, self.signed.as_bytes(), &self.signature)) {
            return Err(TokenRefusal::WrongSignature);
        }
        let (_, claims) = self.signed.split_once('.').ok_or(TokenRefusal::Malformed)?;
        serde_json::from_slice(&decode(claims)?).map_err(|_| TokenRefusal::Malformed)
    }
}

fn decode_field(text: Option<&str>) -> Option<Vec<u8>> {
    decode(text?).ok()
}

fn decode(text: &str) -> Result<Vec<u8>, TokenRefusal> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenRefusal::Malformed)
}

/// The public keys of an issuer that fit the algorithm.
#[derive(Debug, Default)]
pub struct PublicKeys(Vec<PublicKey>);

#[derive(Debug)]
struct PublicKey {
    id: Option<String>,
    material: KeyMaterial,
}

#[derive(Debug)]
enum KeyMaterial {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point of a curve, in the form that *ring* takes.
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

impl PublicKeys {
    /// Reads a JWK set. Keys that we cannot use are left out.
    pub fn read(set: &Value, algorithm: Algorithm) -> Self {
        let keys = set["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
        let keys = keys.iter().filter_map(|key| Jwk::deserialize(key).ok());
        Self(keys.filter_map(|key| key.into_key(algorithm)).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, id: Option<&str>) -> bool {
        self.candidates(id).next().is_some()
    }

    /// Returns the keys of this id, or all of them if the token names none.
    fn candidates(&self, id: Option<&str>) -> impl Iterator<Item = &PublicKey> {
        self.0.iter().filter(move |key| id.is_none() || key.id.as_deref() == id)
    }
}

impl Jwk {
    fn into_key(self, algorithm: Algorithm) -> Option<PublicKey> {
        let is_for_this = self.alg.as_deref().is_none_or(|alg| alg == algorithm.as_str());
        let is_for_signatures = self.usage.as_deref().is_none_or(|usage| usage == "sig");
        if !(is_for_this && is_for_signatures) {
            return None;
        }
        use Algorithm as A;
        let material = match (algorithm, self.kty.as_str(), self.crv.as_deref()) {
            (A::Rs256 | A::Rs384 | A::Rs512 | A::Ps256, "RSA", _) => {
                KeyMaterial::Rsa { n: decode_field(self.n.as_deref())?, e: decode_field(self.e.as_deref())? }
            }
            (A::Es256, "EC", Some("P-256")) | (A::Es384, "EC", Some("P-384")) => {
                let uncompressed = [vec![4], decode_field(self.x.as_deref())?, decode_field(self.y.as_deref())?];
                KeyMaterial::Point(uncompressed.concat())
            }
            (A::EdDsa, "OKP", Some("Ed25519")) => KeyMaterial::Point(decode_field(self.x.as_deref())?),
            _ => return None,
        };
        Some(PublicKey { id: self.kid, material })
    }
}

impl PublicKey {
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
            KeyMaterial::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(rsa, message, signature).is_ok(),
            KeyMaterial::Point(point) => UnparsedPublicKey::new(curve, point).verify(message, signature).is_ok(),
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

    fn claims(algorithm: Algorithm, (key, token): (&str, &str)) -> Result<Value, TokenRefusal> {
        let key: Value = serde_json::from_str(key).unwrap();
        SignedToken::parse(token, algorithm)?.verify(algorithm, &PublicKeys::read(&json!({"keys": [key]}), algorithm))
    }

    #[test]
    fn tokens_of_the_standards_are_accepted() {
        assert_eq!(claims(Algorithm::Rs256, RS256).unwrap()["iss"], "joe");
        assert_eq!(claims(Algorithm::Es256, ES256).unwrap()["exp"], 1_300_819_380);
        let key = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let text = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert_eq!(
            claims(Algorithm::EdDsa, (key, text)),
            Err(TokenRefusal::Malformed),
            "signed, though its claims are text"
        );
    }

    #[test]
    fn token_does_not_choose_its_algorithm() {
        let rest = RS256.1.split_once('.').unwrap().1;
        for alg in ["none", "None", "HS256", "rs256", "RS384", "ES256", ""] {
            let token = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(json!({"alg": alg}).to_string()));
            assert_eq!(claims(Algorithm::Rs256, (RS256.0, &token)), Err(TokenRefusal::WrongAlgorithm), "{alg}");
        }
        assert_eq!(claims(Algorithm::Es256, RS256), Err(TokenRefusal::WrongAlgorithm));
        let critical =
            format!("{}.{rest}", URL_SAFE_NO_PAD.encode(json!({"alg": "RS256", "crit": ["exp"]}).to_string()));
        assert_eq!(claims(Algorithm::Rs256, (RS256.0, &critical)), Err(TokenRefusal::WrongAlgorithm));
        assert_eq!(
            claims(Algorithm::Rs256, (ES256.0, RS256.1)),
            Err(TokenRefusal::UnknownKey),
            "a key of another kind"
        );
    }

    #[test]
    fn altered_or_cut_token_is_refused() {
        let (signed, signature) = ES256.1.rsplit_once('.').unwrap();
        let (head, _) = signed.split_once('.').unwrap();
        let other = URL_SAFE_NO_PAD.encode(json!({"iss": "eve"}).to_string());
        for token in [format!("{head}.{other}.{signature}"), format!("{signed}."), format!("{signed}.AAAA")] {
            assert_eq!(claims(Algorithm::Es256, (ES256.0, &token)), Err(TokenRefusal::WrongSignature), "{token}");
        }
        let long = format!("{signed}{}.{signature}", "A".repeat(MAX_TOKEN_BYTES));
        for token in ["", ".", "..", "a.b", "a.b.c", signed, &format!("{}.x", ES256.1), &long, "é.é.é"] {
            assert!(claims(Algorithm::Es256, (ES256.0, token)).is_err(), "{token}");
        }
    }
}
