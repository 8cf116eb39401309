//! The token sequence of one email, as both databases index it.
//!
//! `subject : from : recipient : … : filename : … : :subject:… : :from:… : :to:… : :filename:… : :has:attachment : body`
//!
//! Each header field is in it twice, for a search anywhere and for a search in that field, and a [`PHRASE_GAP`] keeps
//! phrases from crossing from one value into the next.

use std::collections::HashMap;

use domain::search::{PHRASE_GAP, TOKENS_VERSION, version_token};
use domain::{Address, RecipientKind};

use super::words::words;
use super::{HAS_ATTACHMENT, SearchField};
use crate::mime::ParsedEmail;

/// PostgreSQL counts positions up to 16,383 and takes every later word for a neighbour of the last.
const MAX_TOKENS: usize = 16_000;
/// PostgreSQL keeps 256 positions of a word and silently drops the rest.
const MAX_TOKEN_REPEATS: u16 = 255;
/// Under the 1 MB that PostgreSQL allows, with space for its own bookkeeping.
const MAX_TOKEN_BYTES: usize = 400_000;

/// The searchable text of an email.
#[derive(Debug, Clone, Default)]
pub struct EmailText<'a> {
    pub subject: Option<&'a str>,
    pub from: Option<&'a Address>,
    /// To, Cc and Bcc.
    pub recipients: Vec<&'a Address>,
    pub filenames: Vec<&'a str>,
    pub body: Option<&'a str>,
    pub has_attachment: bool,
}

impl<'a> EmailText<'a> {
    pub fn of(email: &'a ParsedEmail) -> Self {
        let addressed = email.recipients.iter().filter(|recipient| recipient.kind != RecipientKind::ReplyTo);
        Self {
            subject: email.subject.as_deref(),
            from: email.from.as_ref(),
            recipients: addressed.map(|recipient| &recipient.address).collect(),
            filenames: email.attachments.iter().filter_map(|attachment| attachment.filename.as_deref()).collect(),
            body: email.body_text.as_deref(),
            has_attachment: !email.attachments.is_empty(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmailTokens {
    /// Joined by single spaces. A token's position is its place in here.
    pub text: String,
    /// Some words were left out to stay within what a database can index.
    pub is_cut: bool,
}

/// Returns the tokens of an email, at most 16,000 and 400 KB of them.
///
/// Half of the budget is the body's if it needs it; the headers may fill the rest, a quarter of it at most by the
/// subject, then a quarter by the sender, then three quarters by recipients. Of a word that is there more than 255
/// times the later ones become gaps, which a search for the word does not notice.
pub fn email_tokens(email: &EmailText) -> EmailTokens {
    let mut body = TokenSection::new(TokenBudget { positions: MAX_TOKENS, bytes: MAX_TOKEN_BYTES });
    body.add(None, email.body.unwrap_or_default());

    let budget = TokenBudget {
        positions: MAX_TOKENS - body.positions.min(MAX_TOKENS / 2),
        bytes: MAX_TOKEN_BYTES - body.text.len().min(MAX_TOKEN_BYTES / 2),
    };
    let mut header = TokenSection::new(budget.part(1, 2));
    header.add_headers(email, false);
    header.budget = budget;
    header.add_headers(email, true);
    if email.has_attachment {
        header.gap();
        header.push(HAS_ATTACHMENT);
    }
    header.gap();
    header.budget = TokenBudget { positions: MAX_TOKENS, bytes: MAX_TOKEN_BYTES };
    header.append(&body);

    let is_cut = header.is_cut || body.is_cut;
    let text = with_version(limit_repeats(header.text, header.positions), TOKENS_VERSION);
    EmailTokens { text, is_cut }
}

/// Appends the token of the version, last so that it shifts no position. It is one beyond [`MAX_TOKENS`], which leaves
/// space for it.
fn with_version(mut text: String, version: u32) -> String {
    if let Some(token) = version_token(version) {
        text.push_str(if text.is_empty() { "" } else { " " });
        text.push_str(&token);
    }
    text
}

#[derive(Debug, Clone, Copy)]
struct TokenBudget {
    positions: usize,
    bytes: usize,
}

impl TokenBudget {
    fn part(self, numerator: usize, denominator: usize) -> Self {
        Self { positions: self.positions * numerator / denominator, bytes: self.bytes * numerator / denominator }
    }
}

/// Tokens within a budget.
struct TokenSection {
    text: String,
    positions: usize,
    budget: TokenBudget,
    is_cut: bool,
}

impl TokenSection {
    fn new(budget: TokenBudget) -> Self {
        Self { text: String::new(), positions: 0, budget, is_cut: false }
    }

    fn add_headers(&mut self, email: &EmailText, in_field: bool) {
        let whole = self.budget;
        let field = |field| in_field.then_some(field);

        self.leave(whole, 1, 4);
        self.add(field(SearchField::Subject), email.subject.unwrap_or_default());
        self.gap();
        self.leave(whole, 1, 4);
        self.add_people(field(SearchField::From), email.from);
        self.leave(whole, 3, 4);
        self.add_people(field(SearchField::To), email.recipients.iter().copied());
        self.budget = whole;
        for filename in &email.filenames {
            self.add(field(SearchField::Filename), filename);
            self.gap();
        }
    }

    /// Opens a part of what is left of `whole`.
    fn leave(&mut self, whole: TokenBudget, numerator: usize, denominator: usize) {
        let left = TokenBudget {
            positions: whole.positions.saturating_sub(self.positions),
            bytes: whole.bytes.saturating_sub(self.text.len()),
        };
        let part = left.part(numerator, denominator);
        self.budget = TokenBudget { positions: self.positions + part.positions, bytes: self.text.len() + part.bytes };
    }

    fn add_people<'a>(&mut self, field: Option<SearchField>, people: impl IntoIterator<Item = &'a Address>) {
        for person in people {
            self.add(field, person.name.as_deref().unwrap_or_default());
            self.add(field, &person.address);
            self.gap();
        }
    }

    fn add(&mut self, field: Option<SearchField>, text: &str) {
        let mut words = words(text);
        while let Some((word, _)) = words.next_mixed_case() {
            let is_pushed = match field {
                None => self.push(&word),
                Some(field) => self.push(&field.token(&word)),
            };
            if !is_pushed {
                self.is_cut = true;
                return;
            }
        }
    }

    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(" :") {
            self.push(PHRASE_GAP);
        }
    }

    fn push(&mut self, token: &str) -> bool {
        if self.positions == self.budget.positions || self.text.len() + token.len() >= self.budget.bytes {
            return false;
        }
        if self.positions > 0 {
            self.text.push(' ');
        }
        let start = self.text.len();
        self.text.push_str(token);
        self.text[start..].make_ascii_lowercase();
        self.positions += 1;
        true
    }

    fn append(&mut self, other: &Self) {
        let fits = self.positions + other.positions <= self.budget.positions
            && self.text.len() + 1 + other.text.len() <= self.budget.bytes;
        if fits && other.positions > 0 {
            self.text.push_str(if self.positions > 0 { " " } else { "" });
            self.text.push_str(&other.text);
            self.positions += other.positions;
        } else {
            self.is_cut |= !other.text.split_terminator(' ').all(|token| self.push(token));
        }
    }
}

/// Replaces what is beyond [`MAX_TOKEN_REPEATS`] occurrences of a token.
fn limit_repeats(text: String, positions: usize) -> String {
    if positions <= usize::from(MAX_TOKEN_REPEATS) {
        return text;
    }
    // A cheap count by hash first: only tokens in a full bucket, which are few in real mail, are counted exactly.
    let mut buckets = [0_u16; 4096];
    for token in text.split(' ') {
        buckets[bucket(token)] += 1; // at most POSITIONS, which fits
    }
    if buckets.iter().all(|&count| count <= MAX_TOKEN_REPEATS) {
        return text;
    }
    let mut seen: HashMap<&str, u16> = HashMap::new();
    let mut limited = String::with_capacity(text.len());
    for token in text.split(' ') {
        let mut kept = token;
        if buckets[bucket(token)] > MAX_TOKEN_REPEATS {
            let count = seen.entry(token).or_default();
            *count += 1;
            kept = if *count > MAX_TOKEN_REPEATS { PHRASE_GAP } else { token };
        }
        limited.push_str(if limited.is_empty() { "" } else { " " });
        limited.push_str(kept);
    }
    limited
}

fn bucket(token: &str) -> usize {
    let hash = token.bytes().fold(0_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 20) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> EmailTokens {
        email_tokens(&EmailText { body: Some(text), ..EmailText::default() })
    }

    #[test]
    fn fields_are_indexed_twice_and_kept_apart() {
        let alice = Address { name: Some("Alice".to_owned()), address: "a@x.test".to_owned() };
        let email = EmailText {
            subject: Some("Hello you"),
            from: Some(&alice),
            recipients: vec![&alice, &alice],
            filenames: vec!["a.pdf"],
            body: Some("Dear Bob"),
            has_attachment: true,
        };

        let tokens = email_tokens(&email);

        let anywhere = "hello you : alice a x test : alice a x test : alice a x test : a pdf :";
        let from = ":from:alice :from:a :from:x :from:test :";
        let to = ":to:alice :to:a :to:x :to:test :";
        let fields = format!(":subject:hello :subject:you : {from} {to} {to} :filename:a :filename:pdf :");
        assert_eq!(tokens.text, format!("{anywhere} {fields} :has:attachment : dear bob"));
        assert!(!tokens.is_cut);
    }

    #[test]
    fn later_version_is_the_last_token() {
        assert_eq!(with_version("dear bob".to_owned(), 1), "dear bob");
        assert_eq!(with_version("dear bob".to_owned(), 2), "dear bob :version:2");
        assert_eq!(with_version(String::new(), 2), ":version:2");
    }

    #[test]
    fn an_empty_email_has_no_tokens() {
        assert_eq!(body(""), EmailTokens { text: String::new(), is_cut: false });
        assert_eq!(body("hi").text, "hi");
    }

    #[test]
    fn a_body_over_the_limit_is_cut() {
        let text: String = (0..20_000).map(|n| format!("{n} ")).collect();

        let tokens = body(&text);

        assert_eq!(tokens.text.split(' ').count(), MAX_TOKENS);
        assert!(tokens.is_cut);
    }

    #[test]
    fn many_recipients_do_not_displace_the_body() {
        let people: Vec<Address> = (0..4000).map(|n| Address { name: None, address: format!("p{n}@x.test") }).collect();
        let text: String = (0..20_000).map(|n| format!("w{n} ")).collect();
        let email = EmailText {
            recipients: people.iter().collect(),
            filenames: vec!["plan.pdf"],
            body: Some(&text),
            ..EmailText::default()
        };

        let tokens = email_tokens(&email);

        assert!(tokens.is_cut);
        assert_eq!(tokens.text.split(' ').count(), MAX_TOKENS);
        for token in ["p400", ":to:p400", "pdf", ":filename:pdf", "w7999"] {
            assert!(tokens.text.split(' ').any(|found| found == token), "{token}");
        }
    }

    #[test]
    fn a_word_repeated_too_often_becomes_gaps() {
        let tokens = body(&"very ".repeat(1000));

        assert_eq!(tokens.text.split(' ').filter(|&token| token == "very").count(), 255);
        assert_eq!(tokens.text.split(' ').filter(|&token| token == PHRASE_GAP).count(), 745);
        assert!(!tokens.is_cut);
    }

    #[test]
    fn long_words_stay_within_the_bytes() {
        let text: String = (0..16_000).map(|n| format!("{n:060} ")).collect();

        let tokens = body(&text);

        assert!(tokens.text.len() <= MAX_TOKEN_BYTES && tokens.is_cut);
    }
}
