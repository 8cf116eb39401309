//! Attachments of one message.

use axum::http::header::CONTENT_TYPE;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::super::attachment::{self, Attachment, Kind};
use super::super::error::Refusal;
use super::super::world::Mailbox;
use super::call::Entered;
use super::{messages, select};
use crate::answer::{Answer, Body};

/// Attachments of a message, each with its id, and when the message last changed.
fn all(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<(Vec<(String, Attachment)>, i64), Refusal> {
    let (number, content) = messages::content(entered, mailbox)?;
    let (id, modified) = {
        let account = mailbox.account();
        let modified = account.messages.get(&number).map_or(0, |message| message.modified);
        (account.message_id(number, entered.prefer.is_immutable), modified)
    };
    let found = attachment::read(&entered.world.letters.pieces(&content).concat());
    let id = id.trim_end_matches('=').to_owned();
    let named = found.into_iter().enumerate().map(|(at, found)| (format!("{id}BEgAQA{at:04x}="), found)).collect();
    Ok((named, modified))
}

pub fn list(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let (all, modified) = all(entered, mailbox)?;
    // Bytes come unless only other things were asked for.
    let value: Vec<Value> = all
        .iter()
        .map(|(id, attachment)| {
            select::only(attachment.show(id, modified, entered.select.is_none()), entered.select.as_deref())
        })
        .collect();
    Ok(Answer::json(json!({"@odata.context": entered.context("messages/attachments"), "value": value})))
}

pub fn get(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let (all, modified) = all(entered, mailbox)?;
    let (id, attachment) = find(entered, &all)?;
    let mut shown = select::only(attachment.show(id, modified, true), entered.select.as_deref());
    shown["@odata.context"] = json!(entered.context("messages/attachments/$entity"));
    Ok(Answer::json(shown))
}

/// The bytes of a file, or another message's.
pub fn value(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let (all, _) = all(entered, mailbox)?;
    let (_, attachment) = find(entered, &all)?;
    if attachment.kind == Kind::Reference {
        return Err(Refusal::new(405, "ErrorInvalidOperation", "A reference attachment has no content of its own."));
    }
    let bytes = match entered.in_batch {
        true => Bytes::from(STANDARD.encode(&attachment.bytes)),
        false => attachment.bytes.clone(),
    };
    Ok(Answer::new(200, Body::Other { pieces: vec![bytes] }).with(CONTENT_TYPE, "application/octet-stream"))
}

fn find<'a>(entered: &Entered<'_>, all: &'a [(String, Attachment)]) -> Result<&'a (String, Attachment), Refusal> {
    // Either kind of id of the message may be in it; what tells attachments apart is at the end.
    let place = entered.call.path("attachment-id").rsplit_once("BEgAQA").map(|(_, place)| place);
    let found = place.and_then(|place| all.iter().find(|(id, _)| id.ends_with(&format!("BEgAQA{place}"))));
    found.ok_or_else(Refusal::item_not_found)
}
