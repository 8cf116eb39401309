//! Mail to import: generated, hand-made and hostile.

use std::collections::BTreeSet;

use domain::Sha256;
use serde_json::Value;
use sim::mail::{GeneratedMessage, Generator, LineEnd, Profile, write_mbox};

pub fn generated(seed: u64, count: usize) -> Vec<GeneratedMessage> {
    Generator::new(seed, Profile::ordinary(seed, count)).collect()
}

/// An mbox that keeps the messages byte for byte.
pub fn mbox(seed: u64, count: usize) -> Vec<u8> {
    let mut file = Vec::new();
    write_mbox(&mut file, generated(seed, count), LineEnd::CrLf).unwrap();
    file
}

pub fn simple(subject: &str, body: &str) -> String {
    format!(
        "From: Ann <ann@acme.test>\r\nTo: bob@acme.test\r\nSubject: {subject}\r\n\
         Date: Tue, 02 Jan 2024 12:00:00 +0000\r\n\r\n{body}\r\n"
    )
}

/// Bytes that mailbox formats and terminals stumble over. Each is a message by its headers.
pub fn hostile_messages() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 12] = [
        b"Subject: from lines\n\nFrom here on\n>From there\n>>From everywhere\nFrom a@x Tue Jan  2 12:00:00 2024\nTo: x\n",
        b"Subject: no final newline\n\nthe end",
        b"Subject: crlf\r\n\r\na\r\nFrom b\r\n\r\n\r\n",
        b"Subject: mixed\r\n\nfoo\nbar\r\nbaz\rqux\n\r\n",
        b"Subject: nul\0bytes\n\nbe\0fore\0\0\n",
        b"Subject: only a header",
        b"Subject: many ends\n\n\n\n\n\n",
        b"Subject: \xff\xfe\x80 raw bytes\n\n\xc3\x28\xa0\xff\n",
        b"Subject: length lies\nContent-Length: 5\n\n123456789\nFrom x\n",
        b"Subject: \x1b[31mred\x1b]0;title\x07\n\n\x1b[2J\x9b31m\x08\x7f bell \x07\n",
        b"Subject: mailroom-bytes=7\n\nFrom a Tue Jan  2 12:00:00 2024 mailroom-bytes=3\n",
        b"From: a@acme.test\nSubject:\n\n",
    ];
    texts.iter().map(|text| text.to_vec()).collect()
}

pub fn hashes(messages: impl IntoIterator<Item = impl AsRef<[u8]>>) -> BTreeSet<String> {
    messages.into_iter().map(|raw| Sha256::of(raw.as_ref()).hex()).collect()
}

pub fn stored_hashes(emails: &[Value]) -> BTreeSet<String> {
    emails.iter().map(|email| email["sha256"].as_str().unwrap().to_owned()).collect()
}

pub fn names(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}
