//! Attachments: files, messages, references to files elsewhere.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mail_parser::{MessageParser, MimeHeaders, PartType};
use serde_json::{Value, json};

use super::message_view::instant;

/// A header field that stands for a reference attachment, which Exchange keeps outside of the message.
const REFERENCE_HEADER: &str = "X-Sim-Reference";

#[derive(Debug)]
pub struct Attachment {
    pub kind: AttachmentKind,
    pub name: String,
    content_type: String,
    is_inline: bool,
    content_id: Option<String>,
    pub bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentKind {
    File,
    /// An attached message.
    Item,
    /// A link to a file elsewhere.
    Reference,
}

/// Extracts the attachments of a raw message, in order.
pub fn read(raw: &[u8]) -> Vec<Attachment> {
    let Some(message) = MessageParser::default().parse(raw) else { return Vec::new() };
    let mut found: Vec<Attachment> = message
        .attachments()
        .map(|part| {
            let (kind, bytes) = match &part.body {
                PartType::Message(inner) => (AttachmentKind::Item, Bytes::copy_from_slice(inner.raw_message())),
                _ => (AttachmentKind::File, Bytes::copy_from_slice(part.contents())),
            };
            let of_type = part.content_type();
            let subtype = of_type.and_then(|kind| kind.subtype().map(|subtype| format!("{}/{subtype}", kind.ctype())));
            Attachment {
                kind,
                name: part.attachment_name().unwrap_or("attachment").to_owned(),
                content_type: subtype.unwrap_or_else(|| "application/octet-stream".to_owned()),
                is_inline: part.content_disposition().is_some_and(mail_parser::ContentType::is_inline),
                content_id: part.content_id().map(str::to_owned),
                bytes,
            }
        })
        .collect();
    if let Some(url) = message.header_raw(REFERENCE_HEADER) {
        let url = url.trim().to_owned();
        found.push(Attachment {
            kind: AttachmentKind::Reference,
            name: url.rsplit('/').next().unwrap_or_default().to_owned(),
            content_type: "text/html".to_owned(),
            is_inline: false,
            content_id: None,
            bytes: Bytes::from(url),
        });
    }
    found
}

impl Attachment {
    pub fn show(&self, id: &str, modified: i64, with_bytes: bool) -> Value {
        let kind = match self.kind {
            AttachmentKind::File => "#microsoft.graph.fileAttachment",
            AttachmentKind::Item => "#microsoft.graph.itemAttachment",
            AttachmentKind::Reference => "#microsoft.graph.referenceAttachment",
        };
        let content_type = match self.kind {
            AttachmentKind::File => json!(self.content_type),
            AttachmentKind::Item | AttachmentKind::Reference => Value::Null,
        };
        let mut shown = json!({
            "@odata.type": kind, "id": id, "name": self.name, "contentType": content_type, "size": self.bytes.len(),
            "isInline": self.is_inline, "lastModifiedDateTime": instant(modified),
        });
        if self.kind == AttachmentKind::File {
            if let Some(content_id) = &self.content_id {
                shown["contentId"] = json!(content_id);
            }
            if with_bytes {
                shown["contentBytes"] = json!(STANDARD.encode(&self.bytes));
            }
        }
        shown
    }
}
