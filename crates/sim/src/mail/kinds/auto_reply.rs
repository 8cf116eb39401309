//! Out-of-office replies (RFC 3834).

use super::MailKind;
use super::body::text_part;
use crate::mail::compose_context::ComposeContext;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::Headers;
use crate::mail::people::PersonId;
use crate::mail::text_writer::wrap;

pub fn write(context: &mut ComposeContext<'_>) -> Draft {
    let home = &context.profile.companies[context.owner.company];
    let others = home.people.len() - 1;
    let author = PersonId {
        company: context.owner.company,
        person: (context.owner.person + 1 + context.rng.below(others)) % home.people.len(),
    };
    let person = context.person(author);
    let style = WritingStyle::new(person.client, context.language, &mut context.rng);
    let phrases = &context.language.lexicon().phrases;
    let answered = context.threads.pick(&mut context.rng).and_then(|thread| thread.message_ids.last().cloned());
    let mut writer = context.writer();
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
        kind: MailKind::Away,
        style,
        language: context.language,
        from: person.contact.clone(),
        return_path: Some(String::new()),
        to: vec![context.contact(context.owner)],
        cc: Vec::new(),
        subject,
        message_id: context.message_id(person.contact.domain()),
        fields: headers.text,
        body: text_part(style, "plain", wrap(&text, 72), context.language),
    }
}
