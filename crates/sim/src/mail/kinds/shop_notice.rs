//! Shop mail: orders, shipping notices, invoices, receipts.

use super::MailKind;
use super::body::{machine_body, with_file};
use crate::mail::compose_context::ComposeContext;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, SERVICES};
use crate::mail::text_writer::{escape_html, wrap};

pub fn write(context: &mut ComposeContext<'_>, kind: MailKind) -> Draft {
    let [name, domain] = *context.rng.pick(&SERVICES);
    let style = WritingStyle::machine(&mut context.rng);
    let phrases = &context.language.lexicon().phrases;
    let (sender, template) = match kind {
        MailKind::Order => ("orders", phrases.order),
        MailKind::Shipping => ("shipping", phrases.shipped),
        MailKind::Invoice => ("billing", phrases.invoice),
        _ => ("receipts", phrases.receipt),
    };
    let subject = context.writer().fill(template);
    let (plain, html) = texts(context, name, &subject);
    let file = context.file();
    let body = machine_body(context, style, plain, html);
    let body = with_file(context, style, body, file);
    let mut headers = Headers::default();
    headers.field("Auto-Submitted", "auto-generated");
    headers.field("X-Entity-Ref-ID", &context.rng.hex(32));
    Draft {
        kind,
        style,
        language: context.language,
        from: Contact { name: name.to_owned(), address: format!("{sender}@{domain}") },
        return_path: None,
        to: vec![context.contact(context.owner)],
        cc: Vec::new(),
        subject,
        message_id: context.message_id(domain),
        fields: headers.text,
        body,
    }
}

/// Writes the table of purchased items, as text and as HTML.
fn texts(context: &mut ComposeContext<'_>, name: &str, subject: &str) -> (String, String) {
    let lexicon = context.language.lexicon();
    let owner = context.contact(context.owner).name;
    let mut plain = format!("{subject}\n\n{owner}\n\n");
    let mut html = format!(
        "<html><head><meta charset=\"utf-8\"></head><body style=\"font-family:Arial,sans-serif\">\n\
         <h2 style=\"color:#0a5\">{name}</h2>\n<p><b>"
    );
    escape_html(&mut html, subject);
    html.push_str("</b></p>\n<table cellpadding=\"6\" style=\"border:1px solid #ccc;border-collapse:collapse\">\n");
    let mut total = 0;
    for _ in 0..context.rng.between(2, 7) {
        let item = *context.rng.pick_skewed(&lexicon.things);
        let (quantity, cents) = (context.rng.between(1, 12), context.rng.between(150, 40_000));
        total += quantity * cents;
        let price = format!("{}.{:02}", cents / 100, cents % 100);
        plain.push_str(&format!("{quantity:>3} x {item}  {price} EUR\n"));
        html.push_str(&format!(
            "<tr><td style=\"text-align:right\">{quantity}</td><td>{item}</td><td align=\"right\">{price} EUR</td></tr>\n"
        ));
    }
    let sum = format!("{}: {}.{:02} EUR", lexicon.phrases.total, total / 100, total % 100);
    let size = context.body_size();
    let remarks = context.writer().text((size / 3).saturating_sub(plain.len()).max(120));
    plain.push_str(&format!("\n{sum}\n\n{}\n", wrap(&remarks, 72)));
    html.push_str(&format!("<tr><td colspan=\"3\" align=\"right\"><b>{sum}</b></td></tr>\n</table>\n<p>"));
    escape_html(&mut html, &remarks);
    html.push_str("</p>\n</body></html>\n");
    (plain, html)
}
