//! People writing to each other: a topic is begun and answered.

use super::Kind;
use super::body::{Letter, Quote, assemble};
use crate::mail::clients::Style;
use crate::mail::dates;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, PersonId};
use crate::mail::threads::{Thread, Turn};

pub fn topic(desk: &mut Desk<'_>) -> Draft {
    let participants = circle(desk);
    let author = if desk.rng.percent(40) { desk.owner } else { *desk.rng.pick(&participants) };
    let subject = desk.writer().subject();
    let mut thread = Thread {
        number: 0,
        subject: subject.clone(),
        language: desk.language,
        participants,
        message_ids: Vec::new(),
        last: Turn { author, sent_at: desk.sent_at, text: String::new() },
    };
    let draft = turn(desk, &mut thread, author, Kind::Topic, subject, None);
    desk.threads.start(thread);
    draft
}

/// `None` when there is no conversation yet.
pub fn reply(desk: &mut Desk<'_>) -> Option<Draft> {
    let mut thread = desk.threads.pick(&mut desk.rng)?.clone();
    desk.language = thread.language;
    let others: Vec<PersonId> = thread.participants.iter().copied().filter(|id| *id != thread.last.author).collect();
    let author = *desk.rng.pick(&others);
    let prefix = thread.language.lexicon().phrases.reply;
    let subject = format!("{prefix}{}", thread.subject);
    let quote = quote(desk, &thread);
    let draft = turn(desk, &mut thread, author, Kind::Reply, subject, Some(quote));
    desk.threads.update(thread);
    Some(draft)
}

/// Writes one message of the thread and records it there.
fn turn(
    desk: &mut Desk<'_>,
    thread: &mut Thread,
    author: PersonId,
    kind: Kind,
    subject: String,
    quote: Option<Quote>,
) -> Draft {
    let person = desk.person(author);
    let style = Style::new(person.client, thread.language, &mut desk.rng);
    let has_html = desk.rng.percent(style.client.html_percent);
    let size = desk.body_size();
    let (to, cc) = recipients(desk, thread, author);
    let letter = Letter::compose(desk, author, &to, if has_html { size * 2 / 5 } else { size }, quote);
    let message_id = desk.message_id(person.contact.domain());
    let fields = thread_fields(desk, style, &thread.message_ids, &person.contact);
    let body = assemble(desk, style, author, &letter, has_html);
    thread.take_turn(message_id.clone(), author, desk.sent_at, &letter.plain);
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

/// The owner and those spoken with: colleagues, people abroad who share the language, often both.
fn circle(desk: &mut Desk<'_>) -> Vec<PersonId> {
    let mut circle = vec![desk.owner];
    let home = desk.owner.company;
    let is_home_language = desk.profile.companies[home].language == desk.language;
    let abroad: Vec<usize> = desk
        .profile
        .companies
        .iter()
        .enumerate()
        .filter(|(number, company)| *number != home && (is_home_language || company.language == desk.language))
        .map(|(number, _)| number)
        .collect();
    let (colleagues, guests) = if is_home_language {
        (desk.rng.between(1, 3), desk.rng.below(2))
    } else {
        (desk.rng.below(2), desk.rng.between(1, 2))
    };
    for _ in 0..colleagues {
        add(&mut circle, anyone(desk, home));
    }
    for _ in 0..guests {
        if !abroad.is_empty() {
            // The first companies are the ones with mailboxes of their own when there are several.
            let company = *desk.rng.pick_skewed(&abroad);
            add(&mut circle, anyone(desk, company));
        }
    }
    if circle.len() == 1 {
        let person = (desk.owner.person + 1) % desk.profile.companies[home].people.len();
        circle.push(PersonId { company: home, person });
    }
    circle
}

fn anyone(desk: &mut Desk<'_>, company: usize) -> PersonId {
    PersonId { company, person: desk.rng.below(desk.profile.companies[company].people.len()) }
}

fn add(circle: &mut Vec<PersonId>, person: PersonId) {
    if !circle.contains(&person) {
        circle.push(person);
    }
}

/// The last author (or the first of the circle) in To, the rest there or in Cc.
fn recipients(desk: &mut Desk<'_>, thread: &Thread, author: PersonId) -> (Vec<Contact>, Vec<Contact>) {
    let mut others: Vec<PersonId> = thread.participants.iter().copied().filter(|id| *id != author).collect();
    if let Some(place) = others.iter().position(|id| *id == thread.last.author) {
        others.swap(0, place);
    }
    let in_to = desk.rng.between(1, others.len());
    let contacts = |ids: &[PersonId]| ids.iter().map(|id| desk.contact(*id)).collect();
    (contacts(&others[..in_to]), contacts(&others[in_to..]))
}

fn quote(desk: &mut Desk<'_>, thread: &Thread) -> Quote {
    let name = desk.contact(thread.last.author).name;
    let intro = thread.language.lexicon().phrases.wrote;
    let date = dates::written(thread.last.sent_at, thread.language);
    Quote {
        intro: intro.replace("{date}", &date).replace("{person}", &name),
        text: thread.last.text.clone(),
        is_marked: true,
    }
}

/// The fields by which clients find the conversation again, and the client's own.
fn thread_fields(desk: &mut Desk<'_>, style: Style, message_ids: &[String], author: &Contact) -> String {
    let mut headers = Headers::default();
    if let Some(last) = message_ids.last() {
        headers.field("In-Reply-To", &format!("<{last}>"));
        let references: Vec<String> = message_ids.iter().map(|id| format!("<{id}>")).collect();
        headers.field("References", &references.join(" "));
    }
    if desk.rng.percent(6) {
        headers.field("Reply-To", &format!("office@{}", author.domain()));
    }
    if desk.rng.percent(5) {
        headers.field("Importance", "high");
    }
    headers.field("Content-Language", desk.language.tag());
    headers.field(style.client.agent.0, style.client.agent.1);
    headers.text
}
