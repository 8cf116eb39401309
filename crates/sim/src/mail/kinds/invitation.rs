//! Meeting requests: a calendar part beside the text, as iMIP has it (RFC 6047).

use jiff::SignedDuration;

use super::Kind;
use super::body::text_part;
use crate::mail::clients::Style;
use crate::mail::dates;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::{Charset, Headers, Part, TextEncoding};
use crate::mail::people::{Contact, PersonId};
use crate::mail::text::wrap;

/// Content lines of a calendar are folded at 75 bytes (RFC 5545 section 3.1).
const CALENDAR_LINE: usize = 75;

pub fn write(desk: &mut Desk<'_>) -> Draft {
    let home = &desk.profile.companies[desk.owner.company];
    let organizer = PersonId { company: desk.owner.company, person: (desk.owner.person + 1) % home.people.len() };
    let person = desk.person(organizer);
    let owner = desk.contact(desk.owner);
    let person_number = (desk.owner.person + 2 + desk.rng.below(home.people.len() - 2)) % home.people.len();
    let guest = desk.contact(PersonId { company: desk.owner.company, person: person_number });
    let style = Style { charset: Charset::Utf8, ..Style::new(person.client, desk.language, &mut desk.rng) };
    let template = desk.language.lexicon().phrases.invitation;
    let subject = desk.writer().fill(template);
    let size = desk.body_size();
    let agenda = desk.writer().text(size / 3);
    let calendar = calendar(desk, &subject, &agenda, &person.contact, &[&owner, &guest]);
    let mut calendar_part = Part::text("calendar", calendar, Charset::Utf8, TextEncoding::Base64);
    calendar_part.content_type.push_str("; method=REQUEST");
    let plain = text_part(style, "plain", format!("{subject}\n\n{}\n", wrap(&agenda, 72)), desk.language);
    let boundary = style.boundary(&mut desk.rng);
    let mut headers = Headers::default();
    headers.field("Content-Class", "urn:content-classes:calendarmessage");
    headers.field(style.client.agent.0, style.client.agent.1);
    Draft {
        kind: Kind::Invitation,
        style,
        language: desk.language,
        from: person.contact.clone(),
        return_path: None,
        to: vec![owner, guest],
        cc: Vec::new(),
        subject,
        message_id: desk.message_id(person.contact.domain()),
        fields: headers.text,
        body: Part::multipart("multipart/alternative", boundary, vec![plain, calendar_part]),
    }
}

fn calendar(desk: &mut Desk<'_>, title: &str, agenda: &str, organizer: &Contact, guests: &[&Contact]) -> String {
    let start = desk.sent_at + SignedDuration::from_hours(desk.rng.between(20, 300) as i64);
    let mut out = String::new();
    let mut line = |text: &str| append_folded(&mut out, text);
    line("BEGIN:VCALENDAR");
    line("PRODID:-//Courierdesk//Calendar 5.0//EN");
    line("VERSION:2.0");
    line("METHOD:REQUEST");
    line("BEGIN:VEVENT");
    line(&format!("UID:{}@calendar.example", desk.rng.hex(32)));
    line(&format!("DTSTAMP:{}", dates::ics(desk.sent_at)));
    line(&format!("DTSTART:{}", dates::ics(start)));
    line(&format!("DTEND:{}", dates::ics(start + SignedDuration::from_mins(45))));
    line(&format!("SUMMARY:{}", escape(title)));
    line(&format!("DESCRIPTION:{}", escape(agenda)));
    line(&format!("ORGANIZER;CN=\"{}\":mailto:{}", organizer.name, organizer.address));
    for guest in guests {
        line(&format!("ATTENDEE;ROLE=REQ-PARTICIPANT;RSVP=TRUE;CN=\"{}\":mailto:{}", guest.name, guest.address));
    }
    line("SEQUENCE:0");
    line("END:VEVENT");
    line("END:VCALENDAR");
    out
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace(';', "\\;").replace(',', "\\,").replace('\n', "\\n")
}

fn append_folded(out: &mut String, text: &str) {
    let mut rest = text;
    while rest.len() > CALENDAR_LINE {
        let (line, after) = rest.split_at(rest.floor_char_boundary(CALENDAR_LINE));
        out.push_str(line);
        out.push_str("\n ");
        rest = after;
    }
    out.push_str(rest);
    out.push('\n');
}
