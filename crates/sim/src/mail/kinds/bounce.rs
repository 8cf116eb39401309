//! Delivery status notifications (RFC 3464).

use super::MailKind;
use crate::mail::compose_context::ComposeContext;
use crate::mail::dates;
use crate::mail::letter::Draft;
use crate::mail::lexicon::Language;
use crate::mail::mail_programs::{MAIL_PROGRAMS, WritingStyle};
use crate::mail::mime::{Charset, Headers, MimePart, TextEncoding};
use crate::mail::people::Contact;

pub fn write(context: &mut ComposeContext<'_>) -> Draft {
    // Servers answer in English whatever their users speak.
    context.language = Language::English;
    let style = WritingStyle { client: &MAIL_PROGRAMS[0], charset: Charset::Utf8 };
    let owner = context.contact(context.owner);
    let domain = owner.domain().to_owned();
    let lost = format!("{}.{}@elaionis.example", context.rng.token(5).to_ascii_lowercase(), context.rng.hex(4));
    let (status, reason) = *context.rng.pick(&[
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
        dates::rfc5322(context.sent_at, 0)
    );
    let original = original_fields(context, &owner, &lost);
    let parts = vec![
        MimePart::text("plain", text, Charset::Utf8, TextEncoding::Plain),
        MimePart::verbatim("message/delivery-status", report.into_bytes()),
        MimePart::verbatim("text/rfc822-headers", original.into_bytes()),
    ];
    let boundary = style.boundary(&mut context.rng);
    let mut headers = Headers::default();
    headers.field("Auto-Submitted", "auto-replied");
    Draft {
        kind: MailKind::Bounce,
        style,
        language: context.language,
        from: Contact { name: "Mail Delivery System".to_owned(), address: format!("mailer-daemon@{domain}") },
        return_path: Some(String::new()),
        to: vec![owner],
        cc: Vec::new(),
        subject: "Undelivered Mail Returned to Sender".to_owned(),
        message_id: context.message_id(&format!("mx1.{domain}")),
        fields: headers.text,
        body: MimePart::multipart("multipart/report; report-type=delivery-status", boundary, parts),
    }
}

fn original_fields(context: &mut ComposeContext<'_>, owner: &Contact, lost: &str) -> String {
    let client = &MAIL_PROGRAMS[context.person(context.owner).client];
    let subject = context.writer().subject();
    let mut headers = Headers::default();
    headers.field("Message-ID", &format!("<{}>", context.message_id(owner.domain())));
    headers.field("Date", &dates::rfc5322(context.sent_at, 0));
    headers.addresses("From", [(owner.name.as_str(), owner.address.as_str())].into_iter(), Charset::Utf8, client.words);
    headers.field("To", lost);
    headers.unstructured("Subject", &subject, Charset::Utf8, client.words);
    headers.field(client.agent.0, client.agent.1);
    headers.text
}
