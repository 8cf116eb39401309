//! Mail that could not be delivered comes back as a report (RFC 3464).

use super::Kind;
use crate::mail::clients::{CLIENTS, Style};
use crate::mail::dates;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::{Charset, Headers, Part, TextEncoding};
use crate::mail::people::Contact;
use crate::mail::words::Language;

pub fn write(desk: &mut Desk<'_>) -> Draft {
    // Servers answer in English whatever their users speak.
    desk.language = Language::English;
    let style = Style { client: &CLIENTS[0], charset: Charset::Utf8 };
    let owner = desk.contact(desk.owner);
    let domain = owner.domain().to_owned();
    let lost = format!("{}.{}@elaionis.example", desk.rng.token(5).to_ascii_lowercase(), desk.rng.hex(4));
    let (status, reason) = *desk.rng.pick(&[
        ("5.1.1", "550 5.1.1 user unknown"),
        ("5.2.2", "552 5.2.2 mailbox is full"),
        ("5.7.1", "554 5.7.1 message refused by policy"),
        ("4.4.1", "451 4.4.1 no answer from host, given up after 5 days"),
    ]);
    let text = format!(
        "This is the mail system at host mx1.{domain}.\n\nI am sorry to have to inform you that your message could not\n\
         be delivered to one or more recipients. It is attached below.\n\n<{lost}>: {reason}\n"
    );
    let report = format!(
        "Reporting-MTA: dns; mx1.{domain}\r\nArrival-Date: {}\r\n\r\nFinal-Recipient: rfc822; {lost}\r\n\
         Action: failed\r\nStatus: {status}\r\nDiagnostic-Code: smtp; {reason}\r\n",
        dates::rfc5322(desk.sent_at, 0)
    );
    let original = original_fields(desk, &owner, &lost);
    let parts = vec![
        Part::text("plain", text, Charset::Utf8, TextEncoding::Plain),
        Part::verbatim("message/delivery-status", report.into_bytes()),
        Part::verbatim("text/rfc822-headers", original.into_bytes()),
    ];
    let boundary = style.boundary(&mut desk.rng);
    let mut headers = Headers::default();
    headers.field("Auto-Submitted", "auto-replied");
    Draft {
        kind: Kind::Bounce,
        style,
        language: desk.language,
        from: Contact { name: "Mail Delivery System".to_owned(), address: format!("mailer-daemon@{domain}") },
        return_path: Some(String::new()),
        to: vec![owner],
        cc: Vec::new(),
        subject: "Undelivered Mail Returned to Sender".to_owned(),
        message_id: desk.message_id(&format!("mx1.{domain}")),
        fields: headers.text,
        body: Part::multipart("multipart/report; report-type=delivery-status", boundary, parts),
    }
}

fn original_fields(desk: &mut Desk<'_>, owner: &Contact, lost: &str) -> String {
    let client = &CLIENTS[desk.person(desk.owner).client];
    let subject = desk.writer().subject();
    let mut headers = Headers::default();
    headers.field("Message-ID", &format!("<{}>", desk.message_id(owner.domain())));
    headers.field("Date", &dates::rfc5322(desk.sent_at, 0));
    headers.addresses("From", [(owner.name.as_str(), owner.address.as_str())].into_iter(), Charset::Utf8, client.words);
    headers.field("To", lost);
    headers.unstructured("Subject", &subject, Charset::Utf8, client.words);
    headers.field(client.agent.0, client.agent.1);
    headers.text
}
