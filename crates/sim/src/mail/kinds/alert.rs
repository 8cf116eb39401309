//! Automatic mail: password resets and monitoring alerts.

use super::MailKind;
use super::body::machine_body;
use crate::mail::compose_context::ComposeContext;
use crate::mail::dates;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::{Charset, Headers, MimePart, TextEncoding};
use crate::mail::people::Contact;

pub fn password_reset(context: &mut ComposeContext<'_>) -> Draft {
    let style = WritingStyle::machine(&mut context.rng);
    let domain = "tallyhouse.example";
    let subject = context.language.lexicon().phrases.reset.to_owned();
    let link = format!("https://account.{domain}/reset?token={}", context.rng.hex(40));
    let sentence = context.writer().sentence();
    let plain = format!("{subject}\n\n{link}\n\n{sentence}\n");
    let html = format!(
        "<html><head><meta charset=\"utf-8\"></head><body style=\"margin:0;background:#eef2f5\">\n\
         <div style=\"max-width:480px;margin:32px auto;background:#fff;padding:24px;font-family:Verdana,sans-serif\">\n\
         <h3>{subject}</h3>\n<p>{sentence}</p>\n\
         <p><a href=\"{link}\" style=\"background:#2a6;color:#fff;padding:10px 18px;border-radius:4px\">{subject}</a></p>\n\
         <p style=\"color:#888;font-size:11px\">Tallyhouse &middot; 192.0.2.{}</p>\n</div>\n</body></html>\n",
        context.rng.between(1, 254)
    );
    let mut headers = Headers::default();
    headers.field("Auto-Submitted", "auto-generated");
    headers.field("X-Auto-Response-Suppress", "All");
    Draft {
        kind: MailKind::PasswordReset,
        style,
        language: context.language,
        from: Contact { name: "Tallyhouse Accounts".to_owned(), address: format!("no-reply@{domain}") },
        return_path: None,
        to: vec![context.contact(context.owner)],
        cc: Vec::new(),
        subject,
        message_id: context.message_id(domain),
        fields: headers.text,
        body: machine_body(context, style, plain, html),
    }
}

pub fn machine(context: &mut ComposeContext<'_>) -> Draft {
    let style = WritingStyle::machine(&mut context.rng);
    let domain = "watchtower-mon.example";
    let template = context.language.lexicon().phrases.alert;
    let subject = context.writer().fill(template);
    let size = context.body_size();
    let mut text = format!("{subject}\n\n");
    while text.len() < size {
        let rng = &mut context.rng;
        let level = *rng.pick(&["info", "info", "info", "warn", "error"]);
        let unit = *rng.pick(&["billing", "gateway", "indexer", "mailer", "scheduler", "storage"]);
        let what = *rng.pick(&[
            "retry after timeout",
            "queue length above limit",
            "connection refused by peer",
            "slow query",
            "certificate expires soon",
            "checkpoint finished",
        ]);
        let (node, took) = (rng.between(1, 40), rng.between(3, 9_000));
        text.push_str(&format!("{} {level:5} {unit}-{node:02}: {what} ({took} ms)\n", dates::ics(context.sent_at)));
    }
    let mut headers = Headers::default();
    headers.field("Auto-Submitted", "auto-generated");
    headers.field("X-Priority", "1 (Highest)");
    headers.field("X-Monitor-Rule", &format!("disk-{}", context.rng.between(1, 60)));
    Draft {
        kind: MailKind::Alert,
        style,
        language: context.language,
        from: Contact { name: "Watchtower".to_owned(), address: format!("alerts@{domain}") },
        return_path: None,
        to: vec![context.contact(context.owner)],
        cc: Vec::new(),
        subject,
        message_id: context.message_id(domain),
        fields: headers.text,
        body: MimePart::text("plain", text, Charset::Utf8, TextEncoding::Plain),
    }
}
