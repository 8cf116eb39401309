//! Text from outside in a form that may be logged: secrets and addresses masked, control characters escaped, cut short.
//!
//! It masks by looks alone, so it masks too much rather than too little. It cannot recognise the subject, body or file name
//! of a mail: those must not be in an error text in the first place.

use std::fmt;

/// The longest text that [`redact_for_log`] returns, in characters.
pub const MAX_REDACTED_CHARS: usize = 300;

/// As much of a text is looked at. Masking shortens, so this is more than is returned.
const MAX_INPUT_BYTES: usize = 16 << 10;

/// A run of letters and digits from this length on is taken for a token, key or hash.
const MIN_TOKEN_CHARS: usize = 20;

/// Without a digit a token has to be this long: type names are mixed-case words, too.
const MIN_LETTERS_ONLY_TOKEN_CHARS: usize = 32;

/// From this many numbers on a list is taken for bytes.
const MIN_BYTE_LIST: usize = 6;

const MASK: &str = "***";
const ADDRESS_MASK: &str = "***@***";

/// The last word of a name whose value is secret, such as `client_secret` or `X-Api-Key`.
const SECRET_NAMES: [&str; 16] = [
    "apikey",
    "authorization",
    "clientstate",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "key",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "signature",
    "token",
];

/// Schemes of an `Authorization` header, in lower case. The credentials follow.
const AUTH_SCHEMES: [&str; 4] = ["basic", "bearer", "digest", "negotiate"];

/// Returns a foreign text (the error of a server, a parser, a database) in a form that is safe to log: addresses,
/// passwords in URLs, query strings, bearer tokens and whatever looks like a token, key or hash are masked, control
/// characters are escaped, and at most [`MAX_REDACTED_CHARS`] characters are returned. UUIDs are kept, since they are ids.
pub fn redact_for_log(foreign: &(impl fmt::Display + ?Sized)) -> String {
    cut(escape(&mask(bounded(&foreign.to_string()))))
}

/// Returns the beginning of a text that is too long, without a word that would be cut in two.
fn bounded(text: &str) -> &str {
    if text.len() <= MAX_INPUT_BYTES {
        return text;
    }
    let start = &text[..text.floor_char_boundary(MAX_INPUT_BYTES)];
    start.rfind(char::is_whitespace).map_or("", |end| &start[..end])
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_layout(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns whether a character ends a line or reorders the text around it.
fn is_layout(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_REDACTED_CHARS) {
        let last = text[..end].char_indices().next_back().map_or(0, |(at, _)| at);
        text.truncate(last);
        text.push('…');
    }
    text
}

fn mask(text: &str) -> String {
    let text = mask_byte_lists(text);
    let mut masked = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut expects = NextWord::Anything;
    while let Some(c) = rest.chars().next() {
        if matches!(c, '"' | '\'') && expects == NextWord::Secret {
            // A quoted secret may hold spaces.
            let inner = &rest[1..];
            let end = inner.find(c).unwrap_or(inner.len());
            masked.push(c);
            masked.push_str(MASK);
            rest = &inner[end..];
            if let Some(after) = rest.strip_prefix(c) {
                masked.push(c);
                rest = after;
            }
            expects = NextWord::Anything;
        } else if is_delimiter(c) {
            masked.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            let (word, after) = rest.split_at(word_end(rest));
            expects = mask_word(word, expects, &mut masked);
            rest = after;
        }
    }
    masked
}

/// What the next word is, by those before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextWord {
    Anything,
    /// After a name such as `password`: a secret if `:` or `=` comes first.
    Assignment,
    Secret,
    /// After an authorization scheme: a secret unless it reads as a word of a sentence.
    Credentials,
}

fn is_delimiter(c: char) -> bool {
    c.is_whitespace() || c.is_control() || "\"'`<>()[]{},;|".contains(c)
}

/// Returns where the word at the start of a text ends. An apostrophe within a word belongs to it.
fn word_end(text: &str) -> usize {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let is_apostrophe =
            c == '\'' && before.is_alphanumeric() && text[at + 1..].starts_with(|next: char| next.is_alphanumeric());
        if is_delimiter(c) && !is_apostrophe {
            return at;
        }
        before = c;
    }
    text.len()
}

fn mask_word(word: &str, expected: NextWord, masked: &mut String) -> NextWord {
    if AUTH_SCHEMES.contains(&word.to_ascii_lowercase().as_str()) {
        masked.push_str(word);
        return if expected == NextWord::Secret { NextWord::Secret } else { NextWord::Credentials };
    }
    match expected {
        NextWord::Assignment if word.starts_with([':', '=']) => {
            let (sign, value) = word.split_at(1);
            masked.push_str(sign);
            return if value.is_empty() { NextWord::Secret } else { mask_word(value, NextWord::Secret, masked) };
        }
        NextWord::Secret => {
            masked.push_str(MASK);
            return NextWord::Anything;
        }
        NextWord::Credentials if !is_prose(word) => {
            masked.push_str(MASK);
            return NextWord::Anything;
        }
        NextWord::Anything | NextWord::Assignment | NextWord::Credentials => {}
    }
    if let Some((scheme, after)) = word.split_once("://") {
        mask_url(scheme, after, masked);
        return NextWord::Anything;
    }
    let mut next = NextWord::Anything;
    for (n, pair) in word.split('&').enumerate() {
        if n > 0 {
            masked.push('&');
        }
        next = mask_pair(pair, masked);
    }
    next
}

/// Masks `name=value`, `name:value`, or a single value.
fn mask_pair(pair: &str, masked: &mut String) -> NextWord {
    if let Some(at) = pair.find(['=', ':'])
        && is_secret_name(&pair[..at])
    {
        let (name, value) = pair.split_at(at + 1);
        masked.push_str(name);
        return if value.is_empty() { NextWord::Secret } else { mask_word(value, NextWord::Secret, masked) };
    }
    mask_segment(pair, masked);
    if is_secret_name(pair) { NextWord::Assignment } else { NextWord::Anything }
}

/// Returns whether a name such as `client_secret`, `X-Api-Key` or `accessToken` is that of a secret.
fn is_secret_name(name: &str) -> bool {
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    SECRET_NAMES.iter().any(|secret| last.eq_ignore_ascii_case(secret) || ends_with_capitalised(last, secret))
}

fn ends_with_capitalised(name: &str, word: &str) -> bool {
    let start = name.strip_suffix(&word[1..]);
    start.is_some_and(|start| start.ends_with(char::from(word.as_bytes()[0].to_ascii_uppercase())))
}

/// Returns whether it is a lower-case word, perhaps with the punctuation of a sentence.
fn is_prose(word: &str) -> bool {
    word.len() < MIN_TOKEN_CHARS && word.trim_end_matches(['.', ':', '!', '?']).bytes().all(|b| b.is_ascii_lowercase())
}

/// Masks the user, the query and the fragment of a URL, and what looks like a secret in its path.
fn mask_url(scheme: &str, after: &str, masked: &mut String) {
    masked.push_str(scheme);
    masked.push_str("://");
    let (base, query) = after.split_at(after.find(['?', '#']).unwrap_or(after.len()));
    let (authority, path) = base.split_at(base.find('/').unwrap_or(base.len()));
    let path = match authority.rsplit_once('@') {
        Some((_, host)) => {
            masked.push_str("***@");
            masked.push_str(host);
            path
        }
        // A password with a slash or a question mark in it, which should have been encoded.
        None if after.contains('@') && !is_host_and_port(authority) => {
            masked.push_str(ADDRESS_MASK);
            ""
        }
        None => {
            masked.push_str(authority);
            path
        }
    };
    for (n, segment) in path.split('/').enumerate() {
        if n > 0 {
            masked.push('/');
        }
        mask_segment(segment, masked);
    }
    if let Some(mark) = query.chars().next().filter(|_| query.len() > 1) {
        masked.push(mark);
        masked.push_str(MASK);
    }
}

fn is_host_and_port(authority: &str) -> bool {
    authority.split_once(':').is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Masks an address as a whole, else every run of characters that looks like a token.
fn mask_segment(segment: &str, masked: &mut String) {
    if is_address(segment) {
        masked.push_str(ADDRESS_MASK);
        return;
    }
    let mut rest = segment;
    while let Some(c) = rest.chars().next() {
        if is_token_char(c) {
            let (run, after) = rest.split_at(rest.find(|c| !is_token_char(c)).unwrap_or(rest.len()));
            masked.push_str(if is_token(run) { MASK } else { run });
            rest = after;
        } else {
            masked.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
}

fn is_address(word: &str) -> bool {
    let sides = word.rsplit_once('@').or_else(|| word.split_once("%40"));
    sides.is_some_and(|(local, host)| !local.is_empty() && !host.is_empty())
}

/// Returns whether a character belongs to Base64 (both alphabets), hexadecimal digits or percent-encoding.
fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+/=_-%~".contains(c)
}

/// Returns whether a run of characters looks like a token, key or hash rather than like words, a path or an id.
fn is_token(run: &str) -> bool {
    if run.len() < MIN_TOKEN_CHARS || uuid::Uuid::try_parse(run).is_ok_and(|_| run.len() == 36) {
        return false;
    }
    if run.contains('/') && run.split('/').any(is_token) {
        return true;
    }
    let has_digit = run.bytes().any(|b| b.is_ascii_digit());
    let has_lower = run.bytes().any(|b| b.is_ascii_lowercase());
    let has_upper = run.bytes().any(|b| b.is_ascii_uppercase());
    if run.contains('/') {
        // A path rarely has all three, Base64 of this length nearly always.
        return has_digit && has_lower && has_upper;
    }
    has_digit && (has_lower || has_upper) || has_lower && has_upper && run.len() >= MIN_LETTERS_ONLY_TOKEN_CHARS
}

/// Masks `104, 117, 110, …`: bytes, as Rust prints them.
fn mask_byte_lists(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        masked.push_str(before);
        let (numbers, length) = byte_list(from);
        if numbers >= MIN_BYTE_LIST {
            masked.push_str(MASK);
        } else {
            masked.push_str(&from[..length]);
        }
        rest = &from[length..];
    }
    masked.push_str(rest);
    masked
}

/// Returns how many numbers the list at the start of a text has, and its length.
fn byte_list(text: &str) -> (usize, usize) {
    let (mut numbers, mut end) = (0, 0);
    loop {
        let rest = &text[end..];
        let list_item = if numbers == 0 { rest } else { rest.strip_prefix(',').map_or("", str::trim_ascii_start) };
        let digits = list_item.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || (numbers > 0 && digits > 3) {
            return (numbers, end);
        }
        end = text.len() - list_item.len() + digits;
        numbers += 1;
        if digits > 3 {
            return (numbers, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_errors_stay_readable() {
        for text in [
            "the provider is unavailable: connection refused (os error 111)",
            "not done after 900s",
            "NO [AUTHENTICATIONFAILED] LOGIN failed.",
            "503 Service Unavailable from https://gmail.googleapis.com:443/gmail/v1/users/me/messages",
            "imap.acme.test:993: certificate has expired at 2026-05-01T10:30:00Z",
            "email 0190a8c0-1111-7000-8000-0123456789ab: relation \"emails_2026\" does not exist",
            "ConnectorErrorUnavailable: bearer token is missing",
            "cannot read /var/lib/mailroom/blobs/00: [1, 2, 3]",
        ] {
            assert_eq!(redact_for_log(text), text);
        }
    }

    #[test]
    fn addresses_are_masked() {
        for (text, logged) in [
            ("no mailbox ann@acme.test here", "no mailbox ***@*** here"),
            ("<ann.o'neil+tag@acme.test>: unknown", "<***@***>: unknown"),
            ("user=ann@acme.test failed", "***@*** failed"),
            ("GET https://graph.test/users/ann%40acme.test/messages", "GET https://graph.test/users/***@***/messages"),
            ("jörg@müller.test", "***@***"),
        ] {
            assert_eq!(redact_for_log(text), logged);
        }
    }

    #[test]
    fn urls_lose_user_and_query() {
        for (text, logged) in [
            ("postgres://mailroom:hunter2@db:5432/mail is down", "postgres://***@db:5432/mail is down"),
            ("redis://:hunter2@cache/0", "redis://***@cache/0"),
            ("postgres://u:hun/ter@2@db/mail", "postgres://***@***"),
            ("https://hooks.test/x?sig=1&code=abc", "https://hooks.test/x?***"),
            ("(https://hooks.test/x#access_token=abc)", "(https://hooks.test/x#***)"),
            ("https://hooks.test/T0/B0/abcdefghijklmnop1234567", "https://hooks.test/T0/B0/***"),
        ] {
            assert_eq!(redact_for_log(text), logged);
        }
    }

    #[test]
    fn named_secrets_are_masked() {
        for (text, logged) in [
            ("password=hunter2 host=db", "password=*** host=db"),
            ("Password: hunter2", "Password: ***"),
            ("client_secret = 'two words', then", "client_secret = '***', then"),
            (r#"{"accessToken":"short","expires_in":3600}"#, r#"{"accessToken":"***","expires_in":3600}"#),
            ("grant_type=code&refresh_token=abc", "grant_type=code&refresh_token=***"),
            ("Authorization: Bearer abc", "Authorization: Bearer ***"),
            ("authorization:Basic dTpw", "authorization:Basic ***"),
            ("sent Bearer ya29.A0 and got 401", "sent Bearer *** and got 401"),
        ] {
            assert_eq!(redact_for_log(text), logged);
        }
    }

    #[test]
    fn long_tokens_are_masked() {
        let hex = "5f".repeat(16);
        for (secret, kept) in [
            ("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ", "***.***.***"),
            ("Canary-password-0190a8c0111170008000", "***"),
            ("TWFpbHJvb20vbWFp+bHJvb20=", "***"),
            ("AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEf", "***"),
            (hex.as_str(), "***"),
            ("[67, 97, 110, 97, 114, 121]", "[***]"),
        ] {
            assert_eq!(redact_for_log(&format!("got {secret} instead")), format!("got {kept} instead"));
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(redact_for_log("a\r\nb\u{1b}[2J\0 \u{202e}c"), "a\\r\\nb\\u{1b}[2J\\u{0} \\u{202e}c");
    }

    #[test]
    fn long_text_is_cut() {
        let logged = redact_for_log(&"ü ".repeat(1000));
        assert_eq!(logged.chars().count(), MAX_REDACTED_CHARS);
        assert!(logged.ends_with("ü…"), "{logged}");
        assert_eq!(redact_for_log(&"a ".repeat(MAX_REDACTED_CHARS / 2)).chars().count(), MAX_REDACTED_CHARS);
        // A secret that the input bound would cut is dropped as a whole.
        let long = format!("{} {}", "a1".repeat(MAX_INPUT_BYTES / 2 - 5), "b2".repeat(20));
        assert_eq!(redact_for_log(&long), "***");
    }
}
