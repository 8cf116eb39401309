//! Invented mail programs, each with the habits by which real ones are told apart.

use super::mime::{Charset, TextEncoding, WordStyle};
use super::rng::Rng;
use super::words::Language;

#[derive(Debug)]
pub struct Client {
    /// The header field by which it names itself, and what it says there.
    pub agent: (&'static str, &'static str),
    pub words: WordStyle,
    pub text: TextEncoding,
    /// How many of its messages in a hundred have an HTML version.
    pub html_percent: usize,
    /// Whether it still writes the character sets of before Unicode.
    pub is_old: bool,
    pub boundary: &'static str,
}

pub static CLIENTS: [Client; 6] = [
    Client {
        agent: ("X-Mailer", "Larkmail 7.4.2 (Windows; build 7420)"),
        words: WordStyle::Quoted,
        text: TextEncoding::QuotedPrintable,
        html_percent: 90,
        is_old: false,
        boundary: "----=_NextLeaf_000_",
    },
    Client {
        agent: ("User-Agent", "Inkwell/2.9.1 (X11; Linux x86_64)"),
        words: WordStyle::Quoted,
        text: TextEncoding::Plain,
        html_percent: 15,
        is_old: false,
        boundary: "------------",
    },
    Client {
        agent: ("X-Mailer", "Penny Mail Mobile (3.2.1)"),
        words: WordStyle::Base64,
        text: TextEncoding::Base64,
        html_percent: 70,
        is_old: false,
        boundary: "penny-mail-",
    },
    Client {
        agent: ("X-Mailer", "Courierdesk Webmail 5.0"),
        words: WordStyle::Base64,
        text: TextEncoding::QuotedPrintable,
        html_percent: 80,
        is_old: false,
        boundary: "000000000000",
    },
    Client {
        agent: ("X-Mailer", "Postbote Express 6.00.2900"),
        words: WordStyle::Quoted,
        text: TextEncoding::QuotedPrintable,
        html_percent: 50,
        is_old: true,
        boundary: "----=_Teil_",
    },
    Client {
        agent: ("User-Agent", "gull 1.14 (2023-11-02)"),
        words: WordStyle::Base64,
        text: TextEncoding::Plain,
        html_percent: 0,
        is_old: false,
        boundary: "gull=_",
    },
];

/// The choices a client makes for one message.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub client: &'static Client,
    pub charset: Charset,
}

impl Style {
    pub fn new(client: usize, language: Language, rng: &mut Rng) -> Self {
        let client = &CLIENTS[client % CLIENTS.len()];
        let legacy = if client.is_old && rng.percent(70) { Charset::legacy(language) } else { None };
        Self { client, charset: legacy.unwrap_or(Charset::Utf8) }
    }

    /// What programs that send for a service write: always UTF-8, always encoded.
    pub fn machine(rng: &mut Rng) -> Self {
        Self { client: &CLIENTS[*rng.pick(&[0, 3])], charset: Charset::Utf8 }
    }

    pub fn boundary(self, rng: &mut Rng) -> String {
        format!("{}{}", self.client.boundary, rng.hex(24))
    }
}
