//! Attachments of a message.

use axum::http::header::CONTENT_TYPE;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::super::attachment::{self, Attachment, AttachmentKind};
use super::super::error::GraphError;
use super::super::world::MicrosoftMailbox;
use super::call::GraphCallContext;
use super::{messages, select};
use crate::response::{ResponseBody, SimResponse};

/// Returns the attachments of a message with their ids, and the time of the message's last change.
fn all(
    context: &GraphCallContext<'_>,
    mailbox: &MicrosoftMailbox,
) -> Result<(Vec<(String, Attachment)>, i64), GraphError> {
    let (number, content) = messages::content(context, mailbox)?;
    let (id, modified) = {
        let account = mailbox.account();
        let modified = account.messages.get(&number).map_or(0, |message| message.modified);
        (account.message_id(number, context.prefer.is_immutable), modified)
    };
    let found = attachment::read(&context.world.letters.pieces(&content).concat());
    let id = id.trim_end_matches('=').to_owned();
    let named = found.into_iter().enumerate().map(|(at, found)| (format!("{id}BEgAQA{at:04x}="), found)).collect();
    Ok((named, modified))
}

pub fn list(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let (all, modified) = all(context, mailbox)?;
    // Content bytes are included unless `$select` names other fields.
    let value: Vec<Value> = all
        .iter()
        .map(|(id, attachment)| {
            select::only(attachment.show(id, modified, context.select.is_none()), context.select.as_deref())
        })
        .collect();
    Ok(SimResponse::json(json!({"@odata.context": context.context("messages/attachments"), "value": value})))
}

pub fn get(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let (all, modified) = all(context, mailbox)?;
    let (id, attachment) = find(context, &all)?;
    let mut shown = select::only(attachment.show(id, modified, true), context.select.as_deref());
    shown["@odata.context"] = json!(context.context("messages/attachments/$entity"));
    Ok(SimResponse::json(shown))
}

/// Returns the bytes of a file or item attachment.
pub fn value(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let (all, _) = all(context, mailbox)?;
    let (_, attachment) = find(context, &all)?;
    if attachment.kind == AttachmentKind::Reference {
        return Err(GraphError::new(405, "ErrorInvalidOperation", "A reference attachment has no content of its own."));
    }
    let bytes =
        if context.in_batch { Bytes::from(STANDARD.encode(&attachment.bytes)) } else { attachment.bytes.clone() };
    Ok(SimResponse::new(200, ResponseBody::Other { pieces: vec![bytes] })
        .with(CONTENT_TYPE, "application/octet-stream"))
}

fn find<'a>(
    context: &GraphCallContext<'_>,
    all: &'a [(String, Attachment)],
) -> Result<&'a (String, Attachment), GraphError> {
    // The id may contain either kind of message id; the attachment's index is at the end.
    let index = context.call.path("attachment-id").rsplit_once("BEgAQA").map(|(_, index)| index);
    let found = index.and_then(|index| all.iter().find(|(id, _)| id.ends_with(&format!("BEgAQA{index}"))));
    found.ok_or_else(GraphError::item_not_found)
}
