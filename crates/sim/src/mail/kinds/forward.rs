//! Passing on what someone else wrote, inside the text or as a message of its own.

use super::Kind;
use super::body::{Letter, Quote, assemble, text_part};
use crate::mail::clients::Style;
use crate::mail::dates;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::{Headers, Part};
use crate::mail::people::{Contact, PersonId};
use crate::mail::threads::Thread;

/// `None` when there is nothing to forward yet.
pub fn inline(desk: &mut Desk<'_>) -> Option<Draft> {
    let (thread, author) = source(desk)?;
    let original = desk.contact(thread.last.author);
    let phrases = &thread.language.lexicon().phrases;
    let intro = format!(
        "---------- {} ----------\n{}: {} <{}>\n{}: {}\n{}: {}\n",
        phrases.forwarded,
        phrases.from,
        original.name,
        original.address,
        phrases.date,
        dates::written(thread.last.sent_at, thread.language),
        phrases.subject,
        thread.subject,
    );
    let quote = Quote { intro, text: thread.last.text.clone(), is_marked: false };
    let style = Style::new(desk.person(author).client, thread.language, &mut desk.rng);
    let has_html = desk.rng.percent(style.client.html_percent);
    let to = recipients(desk, &thread, author);
    let letter = Letter::compose(desk, author, &to, 300, Some(quote));
    let body = assemble(desk, style, author, &letter, has_html);
    Some(draft(desk, &thread, author, Kind::Forward, style, to, body))
}

/// `None` when there is nothing to forward yet.
pub fn attached(desk: &mut Desk<'_>) -> Option<Draft> {
    let (thread, author) = source(desk)?;
    let style = Style::new(desk.person(author).client, thread.language, &mut desk.rng);
    let to = recipients(desk, &thread, author);
    let letter = Letter::compose(desk, author, &to, 400, None);
    let original = original_message(desk, &thread);
    let parts = vec![
        text_part(style, "plain", letter.plain.clone(), thread.language),
        Part::message(
            original,
            &format!("{}.eml", thread.subject.replace(['/', '"', '\\', ':', '?', '<', '>', '|'], "-")),
        ),
    ];
    let body = Part::multipart("multipart/mixed", style.boundary(&mut desk.rng), parts);
    Some(draft(desk, &thread, author, Kind::ForwardAttached, style, to, body))
}

/// A conversation and someone in it, who may not be the one that wrote last.
fn source(desk: &mut Desk<'_>) -> Option<(Thread, PersonId)> {
    let thread = desk.threads.pick(&mut desk.rng)?.clone();
    desk.language = thread.language;
    let author = *desk.rng.pick(&thread.participants);
    Some((thread, author))
}

/// Someone else at the author's company, and the owners of mailboxes who still have to be told.
fn recipients(desk: &mut Desk<'_>, thread: &Thread, author: PersonId) -> Vec<Contact> {
    let people = desk.profile.companies[author.company].people.len();
    let person = (author.person + 1 + desk.rng.below(people - 1)) % people;
    let colleague = PersonId { company: author.company, person };
    let is_told = |id: &&PersonId| desk.profile.owners.contains(id) && **id != author && **id != colleague;
    let owners = thread.participants.iter().filter(is_told);
    std::iter::once(&colleague).chain(owners).map(|id| desk.contact(*id)).collect()
}

fn draft(
    desk: &mut Desk<'_>,
    thread: &Thread,
    author: PersonId,
    kind: Kind,
    style: Style,
    to: Vec<Contact>,
    body: Part,
) -> Draft {
    let person = desk.person(author);
    let mut headers = Headers::default();
    if let Some(last) = thread.message_ids.last() {
        headers.field("References", &format!("<{last}>"));
    }
    headers.field(style.client.agent.0, style.client.agent.1);
    Draft {
        kind,
        style,
        language: thread.language,
        from: person.contact.clone(),
        return_path: None,
        to,
        cc: Vec::new(),
        subject: format!("{}{}", thread.language.lexicon().phrases.forward, thread.subject),
        message_id: desk.message_id(person.contact.domain()),
        fields: headers.text,
        body,
    }
}

/// The message as it lay in the mailbox: its own header fields and the text that is still known of it.
fn original_message(desk: &mut Desk<'_>, thread: &Thread) -> Vec<u8> {
    let person = desk.person(thread.last.author);
    let style = Style::new(person.client, thread.language, &mut desk.rng);
    let recipients = thread.participants.iter().filter(|id| **id != thread.last.author);
    let original = Draft {
        kind: Kind::Topic,
        style,
        language: thread.language,
        from: person.contact.clone(),
        return_path: None,
        to: recipients.map(|id| desk.contact(*id)).collect(),
        cc: Vec::new(),
        subject: thread.subject.clone(),
        message_id: thread.message_ids.last().cloned().unwrap_or_default(),
        fields: String::new(),
        body: text_part(style, "plain", thread.last.text.clone(), thread.language),
    };
    original.into_letter(0, thread.last.sent_at, thread.last.sent_at).bytes
}
