//! Forwarded messages, inline or as an attachment.

use super::MailKind;
use super::body::{LetterText, Quote, assemble, text_part};
use crate::mail::compose_context::ComposeContext;
use crate::mail::dates;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::{Headers, MimePart};
use crate::mail::people::{Contact, PersonId};
use crate::mail::threads::Thread;

/// Forwards a message inside the text. Returns `None` if there is none yet.
pub fn inline(context: &mut ComposeContext<'_>) -> Option<Draft> {
    let (thread, author) = source(context)?;
    let original = context.contact(thread.last.author);
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
    let style = WritingStyle::new(context.person(author).client, thread.language, &mut context.rng);
    let has_html = context.rng.percent(style.client.html_percent);
    let to = recipients(context, &thread, author);
    let letter = LetterText::compose(context, author, &to, 300, Some(quote));
    let body = assemble(context, style, author, &letter, has_html);
    Some(draft(context, &thread, author, MailKind::Forward, style, to, body))
}

/// Forwards a message as an attachment. Returns `None` if there is none yet.
pub fn attached(context: &mut ComposeContext<'_>) -> Option<Draft> {
    let (thread, author) = source(context)?;
    let style = WritingStyle::new(context.person(author).client, thread.language, &mut context.rng);
    let to = recipients(context, &thread, author);
    let letter = LetterText::compose(context, author, &to, 400, None);
    let original = original_message(context, &thread);
    let parts = vec![
        text_part(style, "plain", letter.plain.clone(), thread.language),
        MimePart::message(
            original,
            &format!("{}.eml", thread.subject.replace(['/', '"', '\\', ':', '?', '<', '>', '|'], "-")),
        ),
    ];
    let body = MimePart::multipart("multipart/mixed", style.boundary(&mut context.rng), parts);
    Some(draft(context, &thread, author, MailKind::ForwardAttached, style, to, body))
}

/// Picks a thread and one of its participants as the forwarding author.
fn source(context: &mut ComposeContext<'_>) -> Option<(Thread, PersonId)> {
    let thread = context.threads.pick(&mut context.rng)?.clone();
    context.language = thread.language;
    let author = *context.rng.pick(&thread.participants);
    Some((thread, author))
}

/// Picks a colleague of the author, and the thread's mailbox owners other than the author.
fn recipients(context: &mut ComposeContext<'_>, thread: &Thread, author: PersonId) -> Vec<Contact> {
    let people = context.profile.companies[author.company].people.len();
    let person = (author.person + 1 + context.rng.below(people - 1)) % people;
    let colleague = PersonId { company: author.company, person };
    let others = thread.participants.iter().filter(|id| **id != author && **id != colleague);
    let owners = others.filter(|id| context.profile.owners.contains(id));
    std::iter::once(&colleague).chain(owners).map(|id| context.contact(*id)).collect()
}

fn draft(
    context: &mut ComposeContext<'_>,
    thread: &Thread,
    author: PersonId,
    kind: MailKind,
    style: WritingStyle,
    to: Vec<Contact>,
    body: MimePart,
) -> Draft {
    let person = context.person(author);
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
        message_id: context.message_id(person.contact.domain()),
        fields: headers.text,
        body,
    }
}

/// Rebuilds the forwarded message from what the thread remembers of it.
fn original_message(context: &mut ComposeContext<'_>, thread: &Thread) -> Vec<u8> {
    let person = context.person(thread.last.author);
    let style = WritingStyle::new(person.client, thread.language, &mut context.rng);
    let recipients = thread.participants.iter().filter(|id| **id != thread.last.author);
    let original = Draft {
        kind: MailKind::Topic,
        style,
        language: thread.language,
        from: person.contact.clone(),
        return_path: None,
        to: recipients.map(|id| context.contact(*id)).collect(),
        cc: Vec::new(),
        subject: thread.subject.clone(),
        message_id: thread.message_ids.last().cloned().unwrap_or_default(),
        fields: String::new(),
        body: text_part(style, "plain", thread.last.text.clone(), thread.language),
    };
    original.into_letter(0, thread.last.sent_at, thread.last.sent_at).bytes
}
