//! Invented mail programs with typical differences.

use super::lexicon::Language;
use super::mime::{Charset, TextEncoding, WordStyle};
use super::rng::Rng;

#[derive(Debug)]
pub struct MailProgram {
    /// The header field in which the program names itself, and its value.
    pub agent: (&'static str, &'static str),
    pub words: WordStyle,
    pub text: TextEncoding,
    /// The percentage of messages with an HTML version.
    pub html_percent: usize,
    /// Whether the program still writes legacy character sets.
    pub is_old: bool,
    pub boundary: &'static str,
}

pub static MAIL_PROGRAMS: [MailProgram; 6] = [
    MailProgram {
        agent: ("X-Mailer", "Larkmail 7.4.2 (Windows; build 7420)"),
        words: WordStyle::Quoted,
        text: TextEncoding::QuotedPrintable,
        html_percent: 90,
        is_old: false,
        boundary: "----=_NextLeaf_000_",
    },
    MailProgram {
        agent: ("User-Agent", "Inkwell/2.9.1 (X11; Linux x86_64)"),
        words: WordStyle::Quoted,
        text: TextEncoding::Plain,
        html_percent: 15,
        is_old: false,
        boundary: "------------",
    },
    MailProgram {
        agent: ("X-Mailer", "Penny Mail Mobile (3.2.1)"),
        words: WordStyle::Base64,
        text: TextEncoding::Base64,
        html_percent: 70,
        is_old: false,
        boundary: "penny-mail-",
    },
    MailProgram {
        agent: ("X-Mailer", "Courierdesk Webmail 5.0"),
        words: WordStyle::Base64,
        text: TextEncoding::QuotedPrintable,
        html_percent: 80,
        is_old: false,
        boundary: "000000000000",
    },
    MailProgram {
        agent: ("X-Mailer", "Postbote Express 6.00.2900"),
        words: WordStyle::Quoted,
        text: TextEncoding::QuotedPrintable,
        html_percent: 50,
        is_old: true,
        boundary: "----=_Teil_",
    },
    MailProgram {
        agent: ("User-Agent", "gull 1.14 (2023-11-02)"),
        words: WordStyle::Base64,
        text: TextEncoding::Plain,
        html_percent: 0,
        is_old: false,
        boundary: "gull=_",
    },
];

/// The choices that a mail program makes for one message.
#[derive(Debug, Clone, Copy)]
pub struct WritingStyle {
    pub client: &'static MailProgram,
    pub charset: Charset,
}

impl WritingStyle {
    pub fn new(client: usize, language: Language, rng: &mut Rng) -> Self {
        let client = &MAIL_PROGRAMS[client % MAIL_PROGRAMS.len()];
        let legacy = if client.is_old && rng.percent(70) { Charset::legacy(language) } else { None };
        Self { client, charset: legacy.unwrap_or(Charset::Utf8) }
    }

    /// Picks the style of a service's mail: always UTF-8, always encoded.
    pub fn machine(rng: &mut Rng) -> Self {
        Self { client: &MAIL_PROGRAMS[*rng.pick(&[0, 3])], charset: Charset::Utf8 }
    }

    pub fn boundary(self, rng: &mut Rng) -> String {
        format!("{}{}", self.client.boundary, rng.hex(24))
    }
}
