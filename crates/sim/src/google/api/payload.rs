//! The MIME structure of a message, as `format=full` and `format=metadata` show it.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mail_parser::{Message, MessageParser, MessagePart, MimeHeaders, PartType};
use serde_json::{Value, json};

/// Counts reads, because Gmail gives an attachment a new id on every read.
static READS: AtomicU64 = AtomicU64::new(1);

/// The maximum nesting depth shown; scripted messages could nest without end.
const MAX_PART_DEPTH: usize = 20;

pub fn full(raw: &[u8], number: u64) -> Value {
    let Some(message) = MessageParser::default().parse(raw) else { return json!({"mimeType": "text/plain"}) };
    let read = READS.fetch_add(1, Ordering::Relaxed);
    part(&message, 0, String::new(), &ReadContext { raw, number, read }, 0)
}

/// Renders the header fields: all of them, or those in `wanted`.
pub fn headers_only(raw: &[u8], wanted: &[&str]) -> Value {
    let Some(message) = MessageParser::default().parse_headers(raw) else { return json!({"mimeType": "text/plain"}) };
    let Some(root) = message.parts.first() else { return json!({"mimeType": "text/plain"}) };
    let mut headers = headers(root, raw);
    headers.retain(|header| {
        wanted.is_empty()
            || header["name"].as_str().is_some_and(|name| wanted.iter().any(|w| w.eq_ignore_ascii_case(name)))
    });
    let mut shown = json!({"mimeType": mime_type(root)});
    if !headers.is_empty() {
        shown["headers"] = json!(headers);
    }
    shown
}

/// Returns the bytes of the attachment that an earlier read gave this id.
pub fn attachment(raw: &[u8], number: u64, id: &str) -> Option<Vec<u8>> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(id).ok()?).ok()?;
    let mut numbers = text.strip_prefix("attachment:")?.split(':').map(str::parse::<u64>);
    let (of, part) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    if of != number {
        return None;
    }
    let message = MessageParser::default().parse(raw)?;
    message.parts.get(part as usize).map(|part| contents(part, raw))
}

struct ReadContext<'a> {
    raw: &'a [u8],
    number: u64,
    read: u64,
}

fn part(message: &Message<'_>, at: usize, name: String, reading: &ReadContext<'_>, depth: usize) -> Value {
    let Some(found) = message.parts.get(at) else { return json!({}) };
    let mut shown =
        json!({"partId": name, "mimeType": mime_type(found), "filename": found.attachment_name().unwrap_or("")});
    let headers = headers(found, reading.raw);
    if !headers.is_empty() {
        shown["headers"] = json!(headers);
    }
    if let PartType::Multipart(inner) = &found.body {
        shown["body"] = json!({"size": 0});
        let inner: Vec<Value> = inner
            .iter()
            .enumerate()
            .filter(|_| depth < MAX_PART_DEPTH)
            .map(|(number, at)| {
                let name = if name.is_empty() { number.to_string() } else { format!("{name}.{number}") };
                part(message, *at as usize, name, reading, depth + 1)
            })
            .collect();
        if !inner.is_empty() {
            shown["parts"] = json!(inner);
        }
        return shown;
    }
    let bytes = contents(found, reading.raw);
    let is_text = matches!(found.body, PartType::Text(_) | PartType::Html(_)) && found.attachment_name().is_none();
    shown["body"] = if is_text {
        json!({"size": bytes.len(), "data": URL_SAFE_NO_PAD.encode(&bytes)})
    } else {
        let id = URL_SAFE_NO_PAD.encode(format!("attachment:{}:{at}:{}", reading.number, reading.read));
        json!({"size": bytes.len(), "attachmentId": id})
    };
    shown
}

fn contents(part: &MessagePart<'_>, raw: &[u8]) -> Vec<u8> {
    match &part.body {
        PartType::Message(_) => {
            raw.get(part.offset_body as usize..part.offset_end as usize).unwrap_or_default().to_vec()
        }
        _ => part.contents().to_vec(),
    }
}

fn mime_type(part: &MessagePart<'_>) -> String {
    let kind = part.content_type().map(|kind| format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or("plain")));
    kind.unwrap_or_else(|| "text/plain".to_owned()).to_lowercase()
}

/// Renders header fields, unfolded and otherwise as written.
fn headers(part: &MessagePart<'_>, raw: &[u8]) -> Vec<Value> {
    part.headers
        .iter()
        .map(|header| {
            let value = raw.get(header.offset_start as usize..header.offset_end as usize).unwrap_or_default();
            let name = raw.get(header.offset_field as usize..header.offset_start as usize).unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            let value = String::from_utf8_lossy(value).replace(['\r', '\n'], "");
            json!({"name": name.trim_end_matches(':').trim(), "value": value.trim()})
        })
        .collect()
}
