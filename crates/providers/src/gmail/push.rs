//! Pushes of Gmail, which come through Google Cloud Pub/Sub, one by one. A token authenticates each: Google must have
//! signed it, for us, in the name of the service account of our subscription. Of what it wraps, only the message id and the
//! account count: what happened there is listed from the account itself.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use domain::push::PushVerification;
use domain::{
    Clock, Provider, PushBatch, PushEndpoint, PushKind, PushNotification, PushReader, PushRefusal, PushSubject,
};
use jwt::{Algorithm, Documents, ExpectedClaims, Issuer, KeySetSource, TokenRefusal, is_in_future};
use serde::Deserialize;
use serde_json::Value;

/// The two spellings of Google's issuer.
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

const ENDPOINT: PushEndpoint = PushEndpoint {
    // Push messages have some hundred bytes.
    max_body_bytes: 64 << 10,
    deadline: None,
    recorded_status: 204,
    // Pub/Sub sends whatever is not acknowledged again, for days.
    accepts_malformed: true,
    validation_parameter: None,
};

/// The longest accepted messageId; Google's are numbers of some 16 digits.
const MAX_MESSAGE_ID_BYTES: usize = 255;

/// The audience and service account that pushes are accepted for, and where Google's keys are.
#[derive(Debug, Clone)]
pub struct GmailPushSettings {
    pub jwks_url: String,
    pub audience: String,
    pub service_account: String,
}

/// Verifies and parses pushes of Gmail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GmailPushReader {
    settings: Arc<GmailPushSettings>,
    issuer: Issuer,
}

impl GmailPushReader {
    pub fn new(settings: GmailPushSettings, documents: Box<dyn Documents>) -> Self {
        let at = KeySetSource::Url(settings.jwks_url.clone());
        let issuer = Issuer::new("providers.google.jwks_url", at, Algorithm::Rs256, documents);
        Self { settings: Arc::new(settings), issuer }
    }
}

impl PushReader for GmailPushReader {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn endpoint(&self) -> &'static PushEndpoint {
        &ENDPOINT
    }

    fn verify<'a>(&'a self, token: Option<&'a str>, clock: &'a dyn Clock) -> PushVerification<'a> {
        Box::pin(async move {
            let token = token.ok_or(PushRefusal::Unauthorized("the token is missing"))?;
            let expected = ExpectedClaims { issuers: &ISSUERS, audience: &self.settings.audience };
            let claims = self.issuer.check(token, expected, clock).await.map_err(push_refusal)?;
            check_sender(&claims, &self.settings, clock)
        })
    }

    fn read(&self, body: &[u8]) -> Result<PushBatch, &'static str> {
        Ok(vec![Ok(read_notification(body)?)])
    }
}

fn push_refusal(refusal: TokenRefusal) -> PushRefusal {
    match refusal {
        TokenRefusal::NoKeys => PushRefusal::NoKeys("Google's signing keys cannot be fetched"),
        TokenRefusal::WrongAudience => PushRefusal::Forbidden(
            "the token is meant for another audience (aud); the audience of the subscription must be providers.google.push_audience",
        ),
        refusal => PushRefusal::Unauthorized(refusal.reason()),
    }
}

fn check_sender(claims: &Value, settings: &GmailPushSettings, clock: &dyn Clock) -> Result<(), PushRefusal> {
    if is_in_future(claims, "iat", clock) {
        return Err(PushRefusal::Unauthorized("the token was issued in the future (iat)"));
    }
    let is_whom_it_must = claims["email"].as_str().is_some_and(|email| email == settings.service_account);
    if !is_whom_it_must || claims["email_verified"] != true {
        return Err(PushRefusal::Forbidden(
            "the token is of another service account than the subscription's (providers.google.push_service_account)",
        ));
    }
    Ok(())
}

#[derive(Deserialize)]
struct PubSubEnvelope {
    message: PubSubMessage,
}

#[derive(Deserialize)]
struct PubSubMessage {
    /// Both spellings may be there at once, so neither is an alias of the other.
    #[serde(rename = "messageId")]
    message_id: Option<String>,
    #[serde(rename = "message_id")]
    snake_message_id: Option<String>,
    data: String,
}

#[derive(Deserialize)]
struct GmailNotification {
    #[serde(rename = "emailAddress")]
    address: String,
    /// The account's current history id; our own cursor decides where a sync continues.
    #[serde(rename = "historyId")]
    history: Value,
}

/// Parses the body of a push. The error says what is wrong, and nothing of the content.
fn read_notification(body: &[u8]) -> Result<PushNotification, &'static str> {
    let PubSubEnvelope { message } = serde_json::from_slice(body).map_err(|_| "the body is not a Pub/Sub message")?;
    let message_id = message.message_id.or(message.snake_message_id).ok_or("messageId is missing")?;
    if message_id.is_empty()
        || message_id.len() > MAX_MESSAGE_ID_BYTES
        || !message_id.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err("messageId is not valid");
    }
    let data = decode(&message.data).ok_or("data is not valid Base64")?;
    let data: GmailNotification = serde_json::from_slice(&data).map_err(|_| "data is not a Gmail notification")?;
    // Google sends it as a number or as a text.
    let is_number = data.history.is_u64() || data.history.as_str().is_some_and(|text| text.parse::<u64>().is_ok());
    if !is_number {
        return Err("historyId is not a number");
    }
    let address = domain::address::canonical(&data.address).ok_or("emailAddress is not an email address")?;
    Ok(PushNotification { id: Some(message_id), subject: PushSubject::Account(address), kind: PushKind::Changed })
}

/// Decodes Base64 of either alphabet, padded or not.
fn decode(text: &str) -> Option<Vec<u8>> {
    const ANY: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    ANY.decode(text.replace('-', "+").replace('_', "/")).ok()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    fn body(message: &Value) -> Vec<u8> {
        json!({"message": message, "subscription": "projects/p/subscriptions/s"}).to_string().into_bytes()
    }

    fn data(data: &Value) -> Value {
        json!({"messageId": "1", "data": STANDARD.encode(data.to_string())})
    }

    #[test]
    fn every_encoding_of_a_push_is_parsed() {
        // With bytes that the two alphabets spell differently.
        let inner = json!({"emailAddress": "Me>?~~@Acme.Test".replace('>', "ÿ"), "historyId": 987}).to_string();
        let wanted = PushNotification {
            id: Some("17".into()),
            subject: PushSubject::Account("meÿ?~~@acme.test".into()),
            kind: PushKind::Changed,
        };
        let spellings = [
            STANDARD.encode(&inner),
            STANDARD_NO_PAD.encode(&inner),
            URL_SAFE.encode(&inner),
            URL_SAFE_NO_PAD.encode(&inner),
        ];
        for data in spellings {
            assert_eq!(read_notification(&body(&json!({"messageId": "17", "data": data}))).as_ref(), Ok(&wanted));
            assert_eq!(read_notification(&body(&json!({"message_id": "17", "data": data}))).as_ref(), Ok(&wanted));
            let both =
                json!({"messageId": "17", "message_id": "17", "publishTime": "x", "publish_time": "x", "data": data});
            assert_eq!(read_notification(&body(&both)).as_ref(), Ok(&wanted));
        }
        let text = data(&json!({"emailAddress": "me@acme.test", "historyId": "987", "more": []}));
        assert_eq!(read_notification(&body(&text)).unwrap().subject, PushSubject::Account("me@acme.test".into()));
    }

    #[test]
    fn malformed_push_is_reported_without_its_content() {
        let good = json!({"emailAddress": "me@acme.test", "historyId": 1});
        let with = |field: &str, value: Value| {
            let mut changed = good.clone();
            changed[field] = value;
            data(&changed)
        };
        for (message, says) in [
            (json!({}), "Pub/Sub"),
            (json!({"data": "e30="}), "messageId is missing"),
            (json!({"messageId": "", "data": "e30="}), "messageId"),
            (json!({"messageId": "a\u{0}b", "data": "e30="}), "messageId"),
            (json!({"messageId": "x".repeat(300), "data": "e30="}), "messageId"),
            (json!({"messageId": 17, "data": "e30="}), "Pub/Sub"),
            (json!({"messageId": "1", "data": "!!!"}), "Base64"),
            (json!({"messageId": "1", "data": "e30="}), "Gmail"),
            (with("emailAddress", json!("nobody")), "emailAddress"),
            (with("emailAddress", json!(null)), "Gmail"),
            (with("historyId", json!("many")), "historyId"),
            (with("historyId", json!(-1)), "historyId"),
        ] {
            let why = read_notification(&body(&message)).unwrap_err();
            assert!(why.contains(says), "{message}: {why}");
        }
        for body in [&b""[..], b"{", b"null", b"[]", b"\xff\xfe", b"{\"message\":null}"] {
            assert_eq!(read_notification(body), Err("the body is not a Pub/Sub message"));
        }
    }
}
