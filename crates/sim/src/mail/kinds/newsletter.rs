//! Bulk mail: mostly markup, with the fields by which a reader can leave.

use super::Kind;
use super::body::machine_body;
use crate::mail::clients::Style;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, SERVICES};
use crate::mail::text::{escape_html, wrap};

pub fn write(desk: &mut Desk<'_>) -> Draft {
    let (name, domain) = *desk.rng.pick(&SERVICES);
    let style = Style::machine(&mut desk.rng);
    let phrases = &desk.language.lexicon().phrases;
    let subject = desk.writer().fill(phrases.newsletter);
    let link = format!("https://news.{domain}/u/{}", desk.rng.hex(24));
    let size = desk.body_size();
    let mut plain = format!("{subject}\n\n");
    let mut html = opening(desk.language.tag(), name);
    while html.len() + plain.len() < size.max(1_500) {
        append_story(desk, domain, &mut plain, &mut html);
    }
    plain.push_str(&format!("{}: {link}\n", phrases.unsubscribe));
    html.push_str(&format!(
        "<tr><td style=\"font-size:11px;color:#999\">{name} &middot; <a href=\"{link}\">{}</a></td></tr>\n\
         </table>\n<img src=\"https://news.{domain}/o/{}.gif\" width=\"1\" height=\"1\" alt=\"\">\n</body></html>\n",
        phrases.unsubscribe,
        desk.rng.hex(16)
    ));
    Draft {
        kind: Kind::Newsletter,
        style,
        language: desk.language,
        from: Contact { name: name.to_owned(), address: format!("news@{domain}") },
        return_path: Some(format!("bounce-{}@news.{domain}", desk.rng.hex(12))),
        to: vec![desk.contact(desk.owner)],
        cc: Vec::new(),
        subject,
        message_id: desk.message_id(&format!("news.{domain}")),
        fields: fields(desk, name, domain, &link),
        body: machine_body(desk, style, plain, html),
    }
}

fn fields(desk: &mut Desk<'_>, name: &str, domain: &str, link: &str) -> String {
    let mut headers = Headers::default();
    headers.field("List-Id", &format!("\"{name}\" <news.{domain}>"));
    headers.field("List-Unsubscribe", &format!("<{link}>, <mailto:leave@{domain}?subject=leave>"));
    headers.field("List-Unsubscribe-Post", "List-Unsubscribe=One-Click");
    headers.field("Precedence", "bulk");
    headers.field("X-Campaign", &desk.rng.hex(10));
    headers.text
}

fn opening(tag: &str, name: &str) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"{tag}\"><head><meta charset=\"utf-8\"><style>\n\
         table.main {{ width: 600px; margin: 0 auto; border-collapse: collapse }}\n\
         td {{ font-family: Georgia, serif; padding: 12px 20px; line-height: 1.5 }}\n\
         h2 {{ font-size: 20px; color: #1b4d6b; margin: 0 }}\na.more {{ color: #b03a2e; text-decoration: none }}\n\
         </style></head>\n<body bgcolor=\"#f2f2f2\">\n<table class=\"main\" bgcolor=\"#ffffff\">\n<tr><td><h1>"
    );
    escape_html(&mut html, name);
    html.push_str("</h1></td></tr>\n");
    html
}

fn append_story(desk: &mut Desk<'_>, domain: &str, plain: &mut String, html: &mut String) {
    let link = format!("https://news.{domain}/s/{}", desk.rng.hex(12));
    let mut writer = desk.writer();
    let (title, text) = (writer.subject(), writer.text(220));
    plain.push_str(&format!("* {title}\n{}\n{link}\n\n", wrap(&text, 72)));
    html.push_str("<tr><td><h2>");
    escape_html(html, &title);
    html.push_str("</h2><p style=\"margin:8px 0\">");
    escape_html(html, &text);
    html.push_str(&format!("</p><a class=\"more\" href=\"{link}\">&raquo;</a></td></tr>\n"));
}
