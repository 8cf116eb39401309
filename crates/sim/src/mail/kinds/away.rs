//! Automatic answers of people on leave (RFC 3834).

use super::Kind;
use super::body::text_part;
use crate::mail::clients::Style;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::Headers;
use crate::mail::people::PersonId;
use crate::mail::text::wrap;

pub fn write(desk: &mut Desk<'_>) -> Draft {
    let home = &desk.profile.companies[desk.owner.company];
    let others = home.people.len() - 1;
    let author = PersonId {
        company: desk.owner.company,
        person: (desk.owner.person + 1 + desk.rng.below(others)) % home.people.len(),
    };
    let person = desk.person(author);
    let style = Style::new(person.client, desk.language, &mut desk.rng);
    let phrases = &desk.language.lexicon().phrases;
    let answered = desk.threads.pick(&mut desk.rng).and_then(|thread| thread.message_ids.last().cloned());
    let mut writer = desk.writer();
    let subject = format!("{}{}", phrases.away, writer.subject());
    let text = format!("{}\n\n{}\n\n{}\n", writer.fill(phrases.away_text), writer.sentence(), person.contact.name);
    let mut headers = Headers::default();
    if let Some(id) = answered {
        headers.field("In-Reply-To", &format!("<{id}>"));
    }
    headers.field("Auto-Submitted", "auto-replied (vacation)");
    headers.field("Precedence", "junk");
    headers.field("X-Auto-Response-Suppress", "DR, OOF, AutoReply");
    Draft {
        kind: Kind::Away,
        style,
        language: desk.language,
        from: person.contact.clone(),
        return_path: Some(String::new()),
        to: vec![desk.contact(desk.owner)],
        cc: Vec::new(),
        subject,
        message_id: desk.message_id(person.contact.domain()),
        fields: headers.text,
        body: text_part(style, "plain", wrap(&text, 72), desk.language),
    }
}
