//! Meeting requests with a calendar part (iMIP, RFC 6047).

use jiff::SignedDuration;

use super::MailKind;
use super::body::text_part;
use crate::mail::compose_context::ComposeContext;
use crate::mail::dates;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::{Charset, Headers, MimePart, TextEncoding};
use crate::mail::people::{Contact, PersonId};
use crate::mail::text_writer::wrap;

/// The length at which calendar lines are folded (RFC 5545 section 3.1).
const MAX_CALENDAR_LINE_BYTES: usize = 75;

pub fn write(context: &mut ComposeContext<'_>) -> Draft {
    let home = &context.profile.companies[context.owner.company];
    let organizer = PersonId { company: context.owner.company, person: (context.owner.person + 1) % home.people.len() };
    let person = context.person(organizer);
    let owner = context.contact(context.owner);
    let person_number = (context.owner.person + 2 + context.rng.below(home.people.len() - 2)) % home.people.len();
    let guest = context.contact(PersonId { company: context.owner.company, person: person_number });
    let style =
        WritingStyle { charset: Charset::Utf8, ..WritingStyle::new(person.client, context.language, &mut context.rng) };
    let template = context.language.lexicon().phrases.invitation;
    let subject = context.writer().fill(template);
    let size = context.body_size();
    let agenda = context.writer().text(size / 3);
    let calendar = calendar(context, &subject, &agenda, &person.contact, &[&owner, &guest]);
    let mut calendar_part = MimePart::text("calendar", calendar, Charset::Utf8, TextEncoding::Base64);
    calendar_part.content_type.push_str("; method=REQUEST");
    let plain = text_part(style, "plain", format!("{subject}\n\n{}\n", wrap(&agenda, 72)), context.language);
    let boundary = style.boundary(&mut context.rng);
    let mut headers = Headers::default();
    headers.field("Content-Class", "urn:content-classes:calendarmessage");
    headers.field(style.client.agent.0, style.client.agent.1);
    Draft {
        kind: MailKind::Invitation,
        style,
        language: context.language,
        from: person.contact.clone(),
        return_path: None,
        to: vec![owner, guest],
        cc: Vec::new(),
        subject,
        message_id: context.message_id(person.contact.domain()),
        fields: headers.text,
        body: MimePart::multipart("multipart/alternative", boundary, vec![plain, calendar_part]),
    }
}

fn calendar(
    context: &mut ComposeContext<'_>,
    title: &str,
    agenda: &str,
    organizer: &Contact,
    guests: &[&Contact],
) -> String {
    let start = context.sent_at + SignedDuration::from_hours(context.rng.between(20, 300) as i64);
    let mut out = String::new();
    append_folded(&mut out, "BEGIN:VCALENDAR");
    append_folded(&mut out, "PRODID:-//Courierdesk//Calendar 5.0//EN");
    append_folded(&mut out, "VERSION:2.0");
    append_folded(&mut out, "METHOD:REQUEST");
    append_folded(&mut out, "BEGIN:VEVENT");
    append_folded(&mut out, &format!("UID:{}@calendar.example", context.rng.hex(32)));
    append_folded(&mut out, &format!("DTSTAMP:{}", dates::ics(context.sent_at)));
    append_folded(&mut out, &format!("DTSTART:{}", dates::ics(start)));
    append_folded(&mut out, &format!("DTEND:{}", dates::ics(start + SignedDuration::from_mins(45))));
    append_folded(&mut out, &format!("SUMMARY:{}", escape(title)));
    append_folded(&mut out, &format!("DESCRIPTION:{}", escape(agenda)));
    append_folded(&mut out, &format!("ORGANIZER;CN=\"{}\":mailto:{}", organizer.name, organizer.address));
    for guest in guests {
        append_folded(
            &mut out,
            &format!("ATTENDEE;ROLE=REQ-PARTICIPANT;RSVP=TRUE;CN=\"{}\":mailto:{}", guest.name, guest.address),
        );
    }
    append_folded(&mut out, "SEQUENCE:0");
    append_folded(&mut out, "END:VEVENT");
    append_folded(&mut out, "END:VCALENDAR");
    out
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace(';', "\\;").replace(',', "\\,").replace('\n', "\\n")
}

fn append_folded(out: &mut String, text: &str) {
    let mut rest = text;
    while rest.len() > MAX_CALENDAR_LINE_BYTES {
        let (line, after) = rest.split_at(rest.floor_char_boundary(MAX_CALENDAR_LINE_BYTES));
        out.push_str(line);
        out.push_str("\n ");
        rest = after;
    }
    out.push_str(rest);
    out.push('\n');
}
