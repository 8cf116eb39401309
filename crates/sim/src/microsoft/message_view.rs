//! Messages in Graph's JSON. The content of a shared letter is parsed once.

use std::sync::OnceLock;

use jiff::Timestamp;
use mail_parser::{Address, MessageParser, MimeHeaders};
use serde_json::{Map, Value, json};

use super::account::{GraphMessage, OutlookAccount};
use crate::letter_pool::{Content, LetterPool};

/// Fields returned only if selected.
const FIELDS_ON_REQUEST: [&str; 2] = ["internetMessageHeaders", "uniqueBody"];

/// The parsed content of a message.
#[derive(Debug, Clone, Default)]
pub struct MessageView {
    subject: String,
    from: Value,
    to: Value,
    cc: Value,
    bcc: Value,
    reply_to: Value,
    sent: Option<i64>,
    has_attachments: bool,
    preview: String,
    text: String,
    html: Option<String>,
}

/// Parsed contents by letter.
#[derive(Debug)]
pub struct MessageViews(Vec<OnceLock<MessageView>>);

impl MessageViews {
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| OnceLock::new()).collect())
    }

    fn with<T>(&self, letters: &LetterPool, content: &Content, look: impl FnOnce(&MessageView) -> T) -> T {
        let read = || MessageView::read(&letters.pieces(content).concat());
        match content {
            Content::Letter { letter, .. } => match self.0.get(*letter as usize) {
                Some(kept) => look(kept.get_or_init(read)),
                None => look(&read()),
            },
            Content::Own(_) => look(&read()),
        }
    }
}

impl MessageView {
    fn read(raw: &[u8]) -> Self {
        let Some(message) = MessageParser::default().parse(raw) else { return Self::default() };
        let text = message.body_text(0).unwrap_or_default();
        Self {
            subject: message.subject().unwrap_or_default().to_owned(),
            from: recipients(message.from()).get(0).cloned().unwrap_or(Value::Null),
            to: recipients(message.to()),
            cc: recipients(message.cc()),
            bcc: recipients(message.bcc()),
            reply_to: recipients(message.reply_to()),
            sent: message.date().map(mail_parser::DateTime::to_timestamp),
            has_attachments: message.attachments().any(|part| {
                !part.content_disposition().is_some_and(mail_parser::ContentType::is_inline)
                    || part.content_id().is_none()
            }),
            preview: text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(255).collect(),
            text: text.into_owned(),
            html: message.html_bodies().next().and_then(|_| message.body_html(0)).map(std::borrow::Cow::into_owned),
        }
    }
}

fn recipients(addresses: Option<&Address<'_>>) -> Value {
    addresses
        .map(|addresses| {
            addresses
                .iter()
                .map(|who| {
                    let address = who.address().unwrap_or_default();
                    json!({"emailAddress": {"name": who.name().unwrap_or(address), "address": address}})
                })
                .collect()
        })
        .unwrap_or_else(|| json!([]))
}

/// Formats as `2026-02-01T12:00:00Z`, in whole seconds.
pub fn instant(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// The client's options for rendering a message.
#[derive(Debug, Clone, Copy)]
pub struct ViewOptions<'a> {
    /// `None`: the default fields.
    pub fields: Option<&'a [String]>,
    pub is_immutable: bool,
    pub is_text_body: bool,
}

impl ViewOptions<'_> {
    fn has(&self, field: &str) -> bool {
        match self.fields {
            Some(fields) => fields.iter().any(|options| options == field),
            None => !FIELDS_ON_REQUEST.contains(&field),
        }
    }

    fn needs_content(&self) -> bool {
        const FIELDS_WITHOUT_CONTENT: [&str; 14] = [
            "id",
            "changeKey",
            "createdDateTime",
            "lastModifiedDateTime",
            "receivedDateTime",
            "isRead",
            "isDraft",
            "flag",
            "parentFolderId",
            "conversationId",
            "conversationIndex",
            "internetMessageId",
            "categories",
            "importance",
        ];
        self.fields.is_none_or(|fields| fields.iter().any(|field| !FIELDS_WITHOUT_CONTENT.contains(&field.as_str())))
    }
}

impl OutlookAccount {
    pub fn show(
        &self,
        number: u64,
        message: &GraphMessage,
        options: &ViewOptions<'_>,
        letters: &LetterPool,
        views: &MessageViews,
    ) -> Value {
        let mut shown = Map::new();
        let change_key = self.change_key(number);
        shown.insert("@odata.etag".to_owned(), json!(format!("W/\"{change_key}\"")));
        shown.insert("id".to_owned(), json!(self.message_id(number, options.is_immutable)));
        let mut put = |field: &str, value: &dyn Fn() -> Value| {
            if options.has(field) {
                shown.insert(field.to_owned(), value());
            }
        };
        put("changeKey", &|| json!(change_key));
        put("createdDateTime", &|| json!(instant(message.created)));
        put("lastModifiedDateTime", &|| json!(instant(message.modified)));
        put("receivedDateTime", &|| json!(instant(message.received)));
        put("isRead", &|| json!(message.is_read));
        put("isDraft", &|| json!(message.is_draft));
        put("flag", &|| json!({"flagStatus": if message.is_flagged { "flagged" } else { "notFlagged" }}));
        put("parentFolderId", &|| json!(self.folder_id(message.folder)));
        put("conversationId", &|| json!(self.conversation_id(message.thread)));
        put("conversationIndex", &|| json!(format!("AQHZ{:016x}", message.thread)));
        put("internetMessageId", &|| match letters.message_id(&message.content) {
            Some(id) => json!(format!("<{id}>")),
            None => Value::Null,
        });
        put("categories", &|| json!([]));
        put("importance", &|| json!("normal"));
        put("internetMessageHeaders", &|| headers(&letters.pieces(&message.content).concat()));
        if options.needs_content() {
            let id = self.message_id(number, options.is_immutable);
            views.with(letters, &message.content, |face| face.show(message, &id, options, &mut put));
        }
        Value::Object(shown)
    }
}

impl MessageView {
    fn show(
        &self,
        message: &GraphMessage,
        id: &str,
        options: &ViewOptions<'_>,
        put: &mut impl FnMut(&str, &dyn Fn() -> Value),
    ) {
        let body = || match &self.html {
            Some(html) if !options.is_text_body => json!({"contentType": "html", "content": html}),
            _ => json!({"contentType": "text", "content": self.text}),
        };
        put("sentDateTime", &|| json!(instant(self.sent.unwrap_or(message.received))));
        put("subject", &|| json!(self.subject));
        put("bodyPreview", &|| json!(self.preview));
        put("body", &body);
        put("uniqueBody", &body);
        put("hasAttachments", &|| json!(self.has_attachments));
        put("sender", &|| self.from.clone());
        put("from", &|| self.from.clone());
        put("toRecipients", &|| self.to.clone());
        put("ccRecipients", &|| self.cc.clone());
        put("bccRecipients", &|| self.bcc.clone());
        put("replyTo", &|| self.reply_to.clone());
        put("isDeliveryReceiptRequested", &|| json!(false));
        put("isReadReceiptRequested", &|| json!(false));
        put("inferenceClassification", &|| json!("focused"));
        put("webLink", &|| json!(format!("https://outlook.office365.com/owa/?ItemID={}", crate::form::encode(id))));
    }
}

/// Renders the header fields in order.
fn headers(raw: &[u8]) -> Value {
    let text = String::from_utf8_lossy(raw);
    let head = text.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n ", " ").replace("\r\n\t", " ");
    head.lines()
        .filter_map(|line| line.split_once(':').map(|(name, value)| json!({"name": name, "value": value.trim()})))
        .collect()
}
