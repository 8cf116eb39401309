//! Newsletters: mostly markup, with List-Unsubscribe fields.

use super::MailKind;
use super::body::machine_body;
use crate::mail::compose_context::ComposeContext;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, SERVICES};
use crate::mail::text_writer::{escape_html, wrap};

pub fn write(context: &mut ComposeContext<'_>) -> Draft {
    let [name, domain] = *context.rng.pick(&SERVICES);
    let style = WritingStyle::machine(&mut context.rng);
    let phrases = &context.language.lexicon().phrases;
    let subject = context.writer().fill(phrases.newsletter);
    let link = format!("https://news.{domain}/u/{}", context.rng.hex(24));
    let size = context.body_size();
    let mut plain = format!("{subject}\n\n");
    let mut html = opening(context.language.tag(), name);
    while html.len() + plain.len() < size.max(1_500) {
        append_story(context, domain, &mut plain, &mut html);
    }
    plain.push_str(&format!("{}: {link}\n", phrases.unsubscribe));
    html.push_str(&format!(
        "<tr><td style=\"font-size:11px;color:#999\">{name} &middot; <a href=\"{link}\">{}</a></td></tr>\n\
         </table>\n<img src=\"https://news.{domain}/o/{}.gif\" width=\"1\" height=\"1\" alt=\"\">\n</body></html>\n",
        phrases.unsubscribe,
        context.rng.hex(16)
    ));
    Draft {
        kind: MailKind::Newsletter,
        style,
        language: context.language,
        from: Contact { name: name.to_owned(), address: format!("news@{domain}") },
        return_path: Some(format!("bounce-{}@news.{domain}", context.rng.hex(12))),
        to: vec![context.contact(context.owner)],
        cc: Vec::new(),
        subject,
        message_id: context.message_id(&format!("news.{domain}")),
        fields: fields(context, name, domain, &link),
        body: machine_body(context, style, plain, html),
    }
}

fn fields(context: &mut ComposeContext<'_>, name: &str, domain: &str, link: &str) -> String {
    let mut headers = Headers::default();
    headers.field("List-Id", &format!("\"{name}\" <news.{domain}>"));
    headers.field("List-Unsubscribe", &format!("<{link}>, <mailto:leave@{domain}?subject=leave>"));
    headers.field("List-Unsubscribe-Post", "List-Unsubscribe=One-Click");
    headers.field("Precedence", "bulk");
    headers.field("X-Campaign", &context.rng.hex(10));
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

fn append_story(context: &mut ComposeContext<'_>, domain: &str, plain: &mut String, html: &mut String) {
    let link = format!("https://news.{domain}/s/{}", context.rng.hex(12));
    let mut writer = context.writer();
    let (title, text) = (writer.subject(), writer.text(220));
    plain.push_str(&format!("* {title}\n{}\n{link}\n\n", wrap(&text, 72)));
    html.push_str("<tr><td><h2>");
    escape_html(html, &title);
    html.push_str("</h2><p style=\"margin:8px 0\">");
    escape_html(html, &text);
    html.push_str(&format!("</p><a class=\"more\" href=\"{link}\">&raquo;</a></td></tr>\n"));
}
