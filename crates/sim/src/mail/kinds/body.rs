//! The bodies of personal letters: text, its HTML version, pictures, files.

use std::sync::Arc;

use crate::mail::attachments::AttachmentFile;
use crate::mail::compose_context::ComposeContext;
use crate::mail::lexicon::Language;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::{Charset, MimePart, TextEncoding};
use crate::mail::people::{Contact, PersonId};
use crate::mail::text_writer::{escape_html, wrap};

/// The column at which mail programs wrap plain text.
const LINE_WIDTH: usize = 72;

/// The text of a letter, before it becomes MIME parts.
#[derive(Debug, Default)]
pub struct LetterText {
    /// Greeting, paragraphs, closing.
    pub text: String,
    /// The quoted message, with the line above it.
    pub quote: Option<Quote>,
    pub signature: String,
    /// The whole letter as plain text.
    pub plain: String,
}

#[derive(Debug)]
pub struct Quote {
    pub intro: String,
    pub text: String,
    /// Whether each line is marked with `>`: so in replies, not in forwards.
    pub is_marked: bool,
}

impl LetterText {
    /// Composes a letter of about `size` bytes in the context's language, which greets the first recipient.
    pub fn compose(
        context: &mut ComposeContext<'_>,
        author: PersonId,
        to: &[Contact],
        size: usize,
        quote: Option<Quote>,
    ) -> Self {
        let person = context.person(author);
        let company = &context.profile.companies[author.company];
        let quoted = quote.as_ref().map_or(0, |quote| quote.text.len());
        let mut writer = context.writer();
        let closing = *writer.rng.pick(&writer.lexicon.closings);
        let reader = to.first().and_then(|contact| contact.name.split(' ').next()).unwrap_or_default();
        let greeting = writer.rng.pick(&writer.lexicon.greetings).replace("{person}", reader);
        let paragraphs = writer.text(size.saturating_sub(quoted + 160).max(180));
        let mut letter = Self {
            text: format!("{greeting}\n\n{paragraphs}\n\n{closing}\n{}", person.contact.name),
            quote,
            signature: format!("{}\n{} | {}\n{}", person.contact.name, company.name, person.job, person.phone),
            plain: String::new(),
        };
        letter.plain = letter.to_plain();
        letter
    }

    fn to_plain(&self) -> String {
        let mut text = wrap(&self.text, LINE_WIDTH);
        text.push_str("\n\n-- \n");
        text.push_str(&self.signature);
        if let Some(quote) = &self.quote {
            text.push_str("\n\n");
            text.push_str(&quote.intro);
            text.push('\n');
            for line in quote.text.lines() {
                if quote.is_marked {
                    text.push_str(if line.starts_with('>') { ">" } else { "> " });
                }
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        text.push('\n');
        text
    }

    pub fn html(&self, language: Language, picture: Option<&str>) -> String {
        let direction = if language == Language::Arabic { " dir=\"rtl\"" } else { "" };
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"{}\"{direction}>\n<head>\n<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n\
             body {{ font-family: sans-serif; font-size: 14px; color: #222 }}\n\
             p {{ margin: 0 0 12px 0 }}\n.sig {{ color: #777; font-size: 12px }}\n\
             blockquote {{ margin: 0 0 0 8px; padding-left: 8px; border-left: 2px solid #bbb }}\n</style>\n</head>\n<body>\n",
            language.tag()
        );
        append_paragraphs(&mut html, &self.text);
        html.push_str("<div class=\"sig\">");
        append_lines(&mut html, &self.signature);
        html.push_str("</div>\n");
        if let Some(content_id) = picture {
            html.push_str(&format!("<div><img src=\"cid:{content_id}\" alt=\"\" border=\"0\"></div>\n"));
        }
        if let Some(quote) = &self.quote {
            html.push_str("<div>");
            append_lines(&mut html, &quote.intro);
            html.push_str("</div>\n<blockquote>");
            append_lines(&mut html, quote.text.trim_end());
            html.push_str("</blockquote>\n");
        }
        html.push_str("</body>\n</html>\n");
        html
    }
}

fn append_paragraphs(html: &mut String, text: &str) {
    for paragraph in text.split("\n\n") {
        html.push_str("<p>");
        append_lines(html, paragraph);
        html.push_str("</p>\n");
    }
}

fn append_lines(html: &mut String, text: &str) {
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            html.push_str("<br>\n");
        }
        escape_html(html, line);
    }
}

/// Assembles the MIME parts of a letter: plain text, optionally HTML with a logo or picture, and a file.
pub fn assemble(
    context: &mut ComposeContext<'_>,
    style: WritingStyle,
    author: PersonId,
    letter: &LetterText,
    has_html: bool,
) -> MimePart {
    let file = context.file();
    // One picture in four is meant to be seen rather than saved.
    let is_shown = has_html && file.as_ref().is_some_and(|f| f.media_type == "image/png") && context.rng.percent(25);
    let (picture, file) = if is_shown { (file, None) } else { (None, file) };
    let has_logo = has_html && context.profile.has_logos && context.rng.percent(35);
    let picture = picture.or_else(|| has_logo.then(|| Arc::clone(&context.assets.logos[author.company])));

    let body = if has_html {
        with_html(context, style, letter, picture)
    } else {
        text_part(style, "plain", letter.plain.clone(), context.language)
    };
    with_file(context, style, body, file)
}

pub fn with_file(
    context: &mut ComposeContext<'_>,
    style: WritingStyle,
    body: MimePart,
    file: Option<Arc<AttachmentFile>>,
) -> MimePart {
    match file {
        None => body,
        Some(file) => {
            let boundary = style.boundary(&mut context.rng);
            MimePart::multipart("multipart/mixed", boundary, vec![body, MimePart::attachment(file)])
        }
    }
}

fn with_html(
    context: &mut ComposeContext<'_>,
    style: WritingStyle,
    letter: &LetterText,
    picture: Option<Arc<AttachmentFile>>,
) -> MimePart {
    let content_id = picture.as_ref().map(|_| format!("{}@inline.example", context.rng.hex(16)));
    let html = text_part(style, "html", letter.html(context.language, content_id.as_deref()), context.language);
    let html = match picture.zip(content_id) {
        None => html,
        Some((picture, content_id)) => {
            let boundary = style.boundary(&mut context.rng);
            let parts = vec![html, MimePart::inline(picture, &content_id)];
            MimePart::multipart("multipart/related; type=\"text/html\"", boundary, parts)
        }
    };
    let plain = text_part(style, "plain", letter.plain.clone(), context.language);
    MimePart::multipart("multipart/alternative", style.boundary(&mut context.rng), vec![plain, html])
}

/// Encodes text as the mail program does. Scripts where nearly every byte would be escaped become base64.
pub fn text_part(style: WritingStyle, subtype: &str, text: String, language: Language) -> MimePart {
    let is_dense = matches!(language, Language::Arabic | Language::Chinese | Language::Japanese)
        || matches!(language, Language::Russian | Language::Greek) && style.charset == Charset::Utf8;
    let encoding = match style.client.text {
        // Seven bits by design, so nothing is left to encode.
        _ if style.charset == Charset::Iso2022Jp => TextEncoding::Plain,
        TextEncoding::QuotedPrintable if is_dense => TextEncoding::Base64,
        encoding => encoding,
    };
    MimePart::text(subtype, text, style.charset, encoding)
}

/// Builds plain text and HTML of a service message.
pub fn machine_body(context: &mut ComposeContext<'_>, style: WritingStyle, plain: String, html: String) -> MimePart {
    let plain = text_part(style, "plain", plain, context.language);
    let html = text_part(style, "html", html, context.language);
    MimePart::multipart("multipart/alternative", style.boundary(&mut context.rng), vec![plain, html])
}
