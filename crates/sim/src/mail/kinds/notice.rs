//! What shops send: orders, parcels, invoices, receipts.

use super::Kind;
use super::body::{machine_body, with_file};
use crate::mail::clients::Style;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, SERVICES};
use crate::mail::text::{escape_html, wrap};

pub fn write(desk: &mut Desk<'_>, kind: Kind) -> Draft {
    let (name, domain) = *desk.rng.pick(&SERVICES);
    let style = Style::machine(&mut desk.rng);
    let phrases = &desk.language.lexicon().phrases;
    let (sender, template) = match kind {
        Kind::Order => ("orders", phrases.order),
        Kind::Shipping => ("shipping", phrases.shipped),
        Kind::Invoice => ("billing", phrases.invoice),
        _ => ("receipts", phrases.receipt),
    };
    let subject = desk.writer().fill(template);
    let (plain, html) = texts(desk, name, &subject);
    let file = desk.file();
    let body = machine_body(desk, style, plain, html);
    let body = with_file(desk, style, body, file);
    let mut headers = Headers::default();
    headers.field("Auto-Submitted", "auto-generated");
    headers.field("X-Entity-Ref-ID", &desk.rng.hex(32));
    Draft {
        kind,
        style,
        language: desk.language,
        from: Contact { name: name.to_owned(), address: format!("{sender}@{domain}") },
        return_path: None,
        to: vec![desk.contact(desk.owner)],
        cc: Vec::new(),
        subject,
        message_id: desk.message_id(domain),
        fields: headers.text,
        body,
    }
}

/// A table of what was bought, as text and as HTML.
fn texts(desk: &mut Desk<'_>, name: &str, subject: &str) -> (String, String) {
    let lexicon = desk.language.lexicon();
    let owner = desk.contact(desk.owner).name;
    let mut plain = format!("{subject}\n\n{owner}\n\n");
    let mut html = format!(
        "<html><head><meta charset=\"utf-8\"></head><body style=\"font-family:Arial,sans-serif\">\n\
         <h2 style=\"color:#0a5\">{name}</h2>\n<p><b>"
    );
    escape_html(&mut html, subject);
    html.push_str("</b></p>\n<table cellpadding=\"6\" style=\"border:1px solid #ccc;border-collapse:collapse\">\n");
    let mut total = 0;
    for _ in 0..desk.rng.between(2, 7) {
        let item = *desk.rng.pick_skewed(&lexicon.things);
        let (quantity, cents) = (desk.rng.between(1, 12), desk.rng.between(150, 40_000));
        total += quantity * cents;
        let price = format!("{}.{:02}", cents / 100, cents % 100);
        plain.push_str(&format!("{quantity:>3} x {item}  {price} EUR\n"));
        html.push_str(&format!(
            "<tr><td style=\"text-align:right\">{quantity}</td><td>{item}</td><td align=\"right\">{price} EUR</td></tr>\n"
        ));
    }
    let sum = format!("{}: {}.{:02} EUR", lexicon.phrases.total, total / 100, total % 100);
    let size = desk.body_size();
    let remarks = desk.writer().text((size / 3).saturating_sub(plain.len()).max(120));
    plain.push_str(&format!("\n{sum}\n\n{}\n", wrap(&remarks, 72)));
    html.push_str(&format!("<tr><td colspan=\"3\" align=\"right\"><b>{sum}</b></td></tr>\n</table>\n<p>"));
    escape_html(&mut html, &remarks);
    html.push_str("</p>\n</body></html>\n");
    (plain, html)
}
