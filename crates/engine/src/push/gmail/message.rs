//! What is in a push, as Pub/Sub wraps it. Only what it is called and whose account it is counts: what happened there, the
//! account itself tells.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::Value;

/// A message that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// What Pub/Sub calls it, however often it delivers it.
    pub message: String,
    /// In canonical case.
    pub address: String,
}

/// Theirs are numbers of some 16 digits.
const LONGEST_NAME: usize = 255;

#[derive(Deserialize)]
struct Envelope {
    message: Wrapped,
}

#[derive(Deserialize)]
struct Wrapped {
    /// Both spellings may be there at once, so neither is an alias of the other.
    #[serde(rename = "messageId")]
    message_id: Option<String>,
    #[serde(rename = "message_id")]
    message_id_too: Option<String>,
    data: String,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "emailAddress")]
    address: String,
    /// Where the account's history stands; ours decides where we go on.
    #[serde(rename = "historyId")]
    history: Value,
}

/// An error says what is wrong with it, and nothing of what is in it.
pub fn read(body: &[u8]) -> Result<Push, &'static str> {
    let Envelope { message } = serde_json::from_slice(body).map_err(|_| "it is not what Pub/Sub sends")?;
    let name = message.message_id.or(message.message_id_too).ok_or("it has no messageId")?;
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its messageId is none");
    }
    let data = decode(&message.data).ok_or("its data is no Base64")?;
    let data: Data = serde_json::from_slice(&data).map_err(|_| "its data is not what Gmail sends")?;
    // As a number or as a text, and both are theirs.
    let is_number = data.history.is_u64() || data.history.as_str().is_some_and(|text| text.parse::<u64>().is_ok());
    if !is_number {
        return Err("its historyId is none");
    }
    let address = domain::address::canonical(&data.address).ok_or("its emailAddress is none")?;
    Ok(Push { message: name, address })
}

/// Of either alphabet, padded or not.
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
    fn every_spelling_of_a_push_is_understood() {
        // With bytes that the two alphabets spell differently.
        let inner = json!({"emailAddress": "Me>?~~@Acme.Test".replace('>', "ÿ"), "historyId": 987}).to_string();
        let wanted = Push { message: "17".into(), address: "meÿ?~~@acme.test".into() };
        let spellings = [
            STANDARD.encode(&inner),
            STANDARD_NO_PAD.encode(&inner),
            URL_SAFE.encode(&inner),
            URL_SAFE_NO_PAD.encode(&inner),
        ];
        for data in spellings {
            assert_eq!(read(&body(&json!({"messageId": "17", "data": data}))).as_ref(), Ok(&wanted));
            assert_eq!(read(&body(&json!({"message_id": "17", "data": data}))).as_ref(), Ok(&wanted));
            let both =
                json!({"messageId": "17", "message_id": "17", "publishTime": "x", "publish_time": "x", "data": data});
            assert_eq!(read(&body(&both)).as_ref(), Ok(&wanted));
        }
        let text = data(&json!({"emailAddress": "me@acme.test", "historyId": "987", "more": []}));
        assert_eq!(read(&body(&text)).unwrap().address, "me@acme.test");
    }

    #[test]
    fn what_makes_no_sense_is_told_without_repeating_it() {
        let good = json!({"emailAddress": "me@acme.test", "historyId": 1});
        let with = |field: &str, value: Value| {
            let mut changed = good.clone();
            changed[field] = value;
            data(&changed)
        };
        for (message, says) in [
            (json!({}), "Pub/Sub"),
            (json!({"data": "e30="}), "no messageId"),
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
            let why = read(&body(&message)).unwrap_err();
            assert!(why.contains(says), "{message}: {why}");
        }
        for body in [&b""[..], b"{", b"null", b"[]", b"\xff\xfe", b"{\"message\":null}"] {
            assert_eq!(read(body), Err("it is not what Pub/Sub sends"));
        }
    }
}
