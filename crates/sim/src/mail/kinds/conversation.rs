//! Conversations: new topics and replies.

use super::MailKind;
use super::body::{LetterText, Quote, assemble};
use crate::mail::compose_context::ComposeContext;
use crate::mail::dates;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, PersonId};
use crate::mail::threads::{LastMessage, Thread};

pub fn topic(context: &mut ComposeContext<'_>) -> Draft {
    let participants = circle(context);
    let author = if context.rng.percent(40) { context.owner } else { *context.rng.pick(&participants) };
    let subject = context.writer().subject();
    let mut thread = Thread {
        number: 0,
        subject: subject.clone(),
        language: context.language,
        participants,
        message_ids: Vec::new(),
        last: LastMessage { author, sent_at: context.sent_at, text: String::new() },
    };
    let draft = turn(context, &mut thread, author, MailKind::Topic, subject, None);
    context.threads.start(thread);
    draft
}

/// Replies to an open thread. Returns `None` if there is none.
pub fn reply(context: &mut ComposeContext<'_>) -> Option<Draft> {
    let mut thread = context.threads.pick(&mut context.rng)?.clone();
    context.language = thread.language;
    let others: Vec<PersonId> = thread.participants.iter().copied().filter(|id| *id != thread.last.author).collect();
    let author = *context.rng.pick(&others);
    let prefix = thread.language.lexicon().phrases.reply;
    let subject = format!("{prefix}{}", thread.subject);
    let quote = quote(context, &thread);
    let draft = turn(context, &mut thread, author, MailKind::Reply, subject, Some(quote));
    context.threads.update(thread);
    Some(draft)
}

/// Writes one message of the thread and records it there.
fn turn(
    context: &mut ComposeContext<'_>,
    thread: &mut Thread,
    author: PersonId,
    kind: MailKind,
    subject: String,
    quote: Option<Quote>,
) -> Draft {
    let person = context.person(author);
    let style = WritingStyle::new(person.client, thread.language, &mut context.rng);
    let has_html = context.rng.percent(style.client.html_percent);
    let size = context.body_size();
    let (to, cc) = recipients(context, thread, author);
    let letter = LetterText::compose(context, author, &to, if has_html { size * 2 / 5 } else { size }, quote);
    let message_id = context.message_id(person.contact.domain());
    let fields = thread_fields(context, style, &thread.message_ids, &person.contact);
    let body = assemble(context, style, author, &letter, has_html);
    thread.record_message(message_id.clone(), author, context.sent_at, &letter.plain);
    Draft {
        kind,
        style,
        language: thread.language,
        from: person.contact.clone(),
        return_path: None,
        to,
        cc,
        subject,
        message_id,
        fields,
        body,
    }
}

/// Picks the participants: the owner, colleagues, and people of other companies who share the language.
fn circle(context: &mut ComposeContext<'_>) -> Vec<PersonId> {
    let mut circle = vec![context.owner];
    let home = context.owner.company;
    let is_home_language = context.profile.companies[home].language == context.language;
    let abroad: Vec<usize> = context
        .profile
        .companies
        .iter()
        .enumerate()
        .filter(|(number, company)| *number != home && (is_home_language || company.language == context.language))
        .map(|(number, _)| number)
        .collect();
    let (colleagues, guests) = if is_home_language {
        (context.rng.between(1, 3), context.rng.below(2))
    } else {
        (context.rng.below(2), context.rng.between(1, 2))
    };
    for _ in 0..colleagues {
        add(&mut circle, anyone(context, home));
    }
    for _ in 0..guests {
        if !abroad.is_empty() {
            // The first companies are the ones with mailboxes of their own when there are several.
            let company = *context.rng.pick_skewed(&abroad);
            add(&mut circle, anyone(context, company));
        }
    }
    if circle.len() == 1 {
        let person = (context.owner.person + 1) % context.profile.companies[home].people.len();
        circle.push(PersonId { company: home, person });
    }
    circle
}

fn anyone(context: &mut ComposeContext<'_>, company: usize) -> PersonId {
    PersonId { company, person: context.rng.below(context.profile.companies[company].people.len()) }
}

fn add(circle: &mut Vec<PersonId>, person: PersonId) {
    if !circle.contains(&person) {
        circle.push(person);
    }
}

/// Splits the other participants into To and Cc; the last author is in To.
fn recipients(context: &mut ComposeContext<'_>, thread: &Thread, author: PersonId) -> (Vec<Contact>, Vec<Contact>) {
    let mut others: Vec<PersonId> = thread.participants.iter().copied().filter(|id| *id != author).collect();
    if let Some(place) = others.iter().position(|id| *id == thread.last.author) {
        others.swap(0, place);
    }
    let in_to = context.rng.between(1, others.len());
    let mut to: Vec<Contact> = others.into_iter().map(|id| context.contact(id)).collect();
    let cc = to.split_off(in_to);
    (to, cc)
}

fn quote(context: &mut ComposeContext<'_>, thread: &Thread) -> Quote {
    let name = context.contact(thread.last.author).name;
    let intro = thread.language.lexicon().phrases.wrote;
    let date = dates::written(thread.last.sent_at, thread.language);
    Quote {
        intro: intro.replace("{date}", &date).replace("{person}", &name),
        text: thread.last.text.clone(),
        is_marked: true,
    }
}

/// Builds the threading fields and those of the mail program.
fn thread_fields(
    context: &mut ComposeContext<'_>,
    style: WritingStyle,
    message_ids: &[String],
    author: &Contact,
) -> String {
    let mut headers = Headers::default();
    if let Some(last) = message_ids.last() {
        headers.field("In-Reply-To", &format!("<{last}>"));
        let references: Vec<String> = message_ids.iter().map(|id| format!("<{id}>")).collect();
        headers.field("References", &references.join(" "));
    }
    if context.rng.percent(6) {
        headers.field("Reply-To", &format!("office@{}", author.domain()));
    }
    if context.rng.percent(5) {
        headers.field("Importance", "high");
    }
    headers.field("Content-Language", context.language.tag());
    headers.field(style.client.agent.0, style.client.agent.1);
    headers.text
}
