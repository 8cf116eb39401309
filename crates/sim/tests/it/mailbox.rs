use std::collections::HashSet;

use mail_parser::{MessageParser, MimeHeaders};
use sim::mail::{GeneratedMessage, Generator, LineEnd, MailKind, Profile, append_to_mbox, bench_mailbox};

fn ordinary(seed: u64, messages: usize) -> Generator {
    Generator::new(seed, Profile::ordinary(seed, messages))
}

/// FNV-1a, so that the pin needs no crate.
fn hash(messages: impl Iterator<Item = GeneratedMessage>) -> u64 {
    messages.fold(0xCBF2_9CE4_8422_2325, |hash, message| {
        message.raw.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
    })
}

#[test]
fn seed_makes_pinned_bytes() {
    assert_eq!(format!("{:016x}", hash(ordinary(1, 200))), "b0b32ffe9aa30b20");
    assert_eq!(format!("{:016x}", hash(bench_mailbox(1, 200))), "c3d264fd6ecfd622");
    assert_ne!(hash(ordinary(1, 20)), hash(ordinary(2, 20)));
}

#[test]
fn bench_mailbox_has_its_size_and_attachments() {
    let messages: Vec<GeneratedMessage> = bench_mailbox(1, 1_000).collect();

    let carrying = messages.iter().filter(|m| m.attachments + m.inline_images > 0).count();
    let mean = messages.iter().map(|m| m.raw.len()).sum::<usize>() / messages.len();
    assert_eq!(messages.len(), 1_000);
    assert_eq!(carrying, 150);
    assert!((17_169..=18_231).contains(&mean), "mean of {mean} bytes");
}

#[test]
fn messages_obey_line_and_ascii_rules() {
    for message in ordinary(3, 1_000) {
        let raw = &message.raw;
        let header_end = raw.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let header = &raw[..header_end];
        assert!(header.is_ascii(), "{}", message.subject);
        if message.folder != "Sent" {
            assert!((900..=3_500).contains(&header.len()), "{} bytes: {:?}", header.len(), message.kind);
        }
        for line in raw.split_inclusive(|&b| b == b'\n') {
            assert!(line.ends_with(b"\r\n"), "a line of {:?} {} has no CRLF", message.kind, message.subject);
            assert!(line.len() <= 1_000);
            assert!(!line[..line.len() - 2].contains(&b'\r'));
        }
    }
}

#[test]
fn every_kind_and_folder_occurs() {
    let messages: Vec<GeneratedMessage> = ordinary(1, 2_000).collect();

    let kinds: HashSet<MailKind> = messages.iter().map(|m| m.kind).collect();
    let folders: HashSet<&str> = messages.iter().map(|m| m.folder).collect();
    assert_eq!(kinds.len(), MailKind::ORDINARY.len());
    assert_eq!(folders, HashSet::from(["INBOX", "Sent", "Archive"]));
    assert!(messages.iter().any(|m| m.inline_images > 0));
    assert!(messages.windows(2).all(|pair| pair[0].received_at <= pair[1].received_at));
    let ids: HashSet<&str> = messages.iter().map(|m| m.message_id.as_str()).collect();
    assert_eq!(ids.len(), messages.len());
}

/// Returns the number of parts with a Content-Disposition.
fn parts_disposed(message: &mail_parser::Message<'_>, disposition: &str) -> usize {
    let dispositions = message.parts.iter().filter_map(MimeHeaders::content_disposition);
    dispositions.filter(|found| found.ctype().eq_ignore_ascii_case(disposition)).count()
}

#[test]
fn parser_agrees_with_the_facts() {
    let parser = MessageParser::default();
    for message in ordinary(5, 1_000) {
        let parsed = parser.parse(&message.raw).unwrap();

        let from = parsed.from().and_then(|from| from.first()).unwrap();
        assert_eq!(parsed.subject(), Some(message.subject.as_str()));
        assert_eq!(from.name(), Some(message.from.name.as_str()));
        assert_eq!(from.address(), Some(message.from.address.as_str()));
        assert_eq!(parsed.message_id(), Some(message.message_id.as_str()));
        assert_eq!(parsed.to().map_or(0, |to| to.iter().count()), message.to.len());
        assert_eq!(parsed.cc().map_or(0, |cc| cc.iter().count()), message.cc.len());
        assert_eq!(parts_disposed(&parsed, "attachment"), message.attachments, "{:?}", message.kind);
        assert_eq!(parts_disposed(&parsed, "inline"), message.inline_images, "{:?}", message.kind);
        assert!(parsed.date().is_some_and(mail_parser::DateTime::is_valid));
        assert!(parsed.body_text(0).is_some_and(|text| !text.contains('\u{FFFD}')), "{:?}", message.kind);
    }
}

#[test]
fn attachments_begin_with_their_signature() {
    let parser = MessageParser::default();
    let mut seen = HashSet::new();
    for message in ordinary(7, 1_500).filter(|m| m.attachments > 0) {
        let parsed = parser.parse(&message.raw).unwrap();
        for part in parsed.attachments() {
            let start: &[u8] = match part.content_type().and_then(|t| t.subtype()) {
                Some("pdf") => b"%PDF-1.4",
                Some("png") => b"\x89PNG\r\n\x1a\n",
                Some("zip" | "vnd.openxmlformats-officedocument.wordprocessingml.document") => b"PK\x03\x04",
                Some("vcard") => b"BEGIN:VCARD",
                Some("json") => b"{\"records\"",
                _ => continue,
            };
            assert!(part.contents().starts_with(start), "{:?}", part.attachment_name());
            seen.insert(start);
        }
    }
    assert_eq!(seen.len(), 5);
}

#[test]
fn mbox_restores_the_messages() {
    let messages: Vec<GeneratedMessage> = ordinary(9, 200).collect();
    let mut file = Vec::new();
    for message in &messages {
        append_to_mbox(&mut file, message, LineEnd::CrLf).unwrap();
    }

    let mut found: Vec<Vec<u8>> = Vec::new();
    for line in file.split_inclusive(|&b| b == b'\n') {
        let start = line.iter().position(|&b| b != b'>').unwrap_or(0);
        match line {
            _ if line.starts_with(b"From ") => found.push(Vec::new()),
            _ if line[start..].starts_with(b"From ") => found.last_mut().unwrap().extend_from_slice(&line[1..]),
            _ => found.last_mut().unwrap().extend_from_slice(line),
        }
    }

    assert_eq!(found.len(), messages.len());
    for (found, message) in found.iter().zip(&messages) {
        assert!(found.strip_suffix(b"\r\n") == Some(&message.raw), "{}", message.subject);
    }
    assert!(file.windows(7).any(|w| w == b"\n>From "), "nothing had to be quoted");
}
