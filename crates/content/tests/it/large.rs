//! A message in the spool says what it says in memory, whatever its size and however broken it is.

use std::fs;
use std::io::Write;

use content::mime::{self, ParsedEmail};
use content::spool::{Spool, SpoolableBytes, SpooledBytes};
use content::tokens::{EmailText, email_tokens};
use domain::MessageLimits;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::fixtures::{facts, mails};
use crate::mutations::{apply, change, tight};

/// Makes a spool to which every message goes.
fn tiny_spool() -> (tempfile::TempDir, Spool) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spool = Spool { message_bytes: 0, part_bytes: 64, ..Spool::new(folder.path()) };
    (folder, spool)
}

fn spooled(raw: &[u8], spool: &Spool) -> SpooledBytes {
    let mut writer = spool.create().expect("the spool can be written");
    writer.write_all(raw).expect("the spool can be written");
    writer.finish()
}

/// Returns all that is stored of an email.
fn everything(email: &ParsedEmail) -> Value {
    let tokens = email_tokens(&EmailText::of(email));
    let md5: Vec<String> = email.attachments.iter().map(|attachment| attachment.content.md5()).collect();
    json!([facts(email), tokens.text, tokens.is_cut, md5])
}

fn difference(raw: &[u8], spool: &Spool, limits: &MessageLimits) -> Option<String> {
    let held = mime::parse(raw, limits);
    let read = mime::parse_spooled(&spooled(raw, spool), spool, limits).expect("the spool can be read");
    for attachment in &read.attachments {
        assert!(attachment.content.in_memory().len() <= spool.part_bytes);
    }
    let (held, read) = (everything(&held), everything(&read));
    (held != read).then(|| format!("in memory {held:#}\nin the spool {read:#}"))
}

#[test]
fn fixtures_say_the_same_from_the_spool() {
    let (_folder, spool) = tiny_spool();
    for mail in mails() {
        let raw = fs::read(&mail).unwrap();
        for limits in [MessageLimits::default(), tight()] {
            if let Some(difference) = difference(&raw, &spool, &limits) {
                panic!("{}: {difference}", mail.display());
            }
        }
    }
}

#[test]
fn spooled_parse_equals_in_memory_parse() {
    let (_folder, spool) = tiny_spool();
    for message in sim::mail::Generator::new(11, sim::mail::Profile::ordinary(11, 300)) {
        assert_eq!(difference(&message.raw, &spool, &MessageLimits::default()), None);
    }
}

#[test]
fn broken_mail_says_the_same_from_the_spool() {
    let (_folder, spool) = tiny_spool();
    let originals: Vec<Vec<u8>> = mails().iter().map(|mail| fs::read(mail).unwrap()).collect();
    let config = Config { cases: 1500, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (0..originals.len(), proptest::collection::vec(change(), 1..6));

    let outcome = runner.run(&strategy, |(which, changes)| {
        let original = &originals[which];
        let mut raw = original[..original.len().min(6000)].to_vec();
        for change in &changes {
            apply(&mut raw, change);
        }
        for limits in [MessageLimits::default(), tight()] {
            prop_assert_eq!(difference(&raw, &spool, &limits), None);
        }
        Ok(())
    });

    outcome.unwrap();
}

fn text(encoding: &str, body: &str) -> Vec<u8> {
    format!("Subject: x\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}").into_bytes()
}

fn parts(part: &str, count: usize) -> Vec<u8> {
    let parts = format!("--b\r\nContent-Type: a/b; name=x\r\n\r\n{part}\r\n").repeat(count);
    format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{parts}--b--\r\nepilogue").into_bytes()
}

/// Mails so long that windows, pieces and lines end everywhere in them.
fn long_mails() -> Vec<(&'static str, Vec<u8>)> {
    let lines = "A line of text that is long enough to be one =\r\n--nob\r\n".repeat(8_000);
    let base64 = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3g=\r\n".repeat(10_000);
    let mut list = base64.clone();
    list.push_str("_____ footer");
    let unclosed = parts(&lines, 2);
    let mut old_mac = unclosed.clone();
    old_mac.retain(|&b| b != b'\n');
    let mut wide = vec![0xFF, 0xFE];
    wide.extend(lines.encode_utf16().flat_map(u16::to_le_bytes));
    vec![
        ("one line", text("8bit", &"x".repeat(700_000))),
        ("lines", text("8bit", &lines)),
        ("quoted-printable", text("quoted-printable", &lines)),
        ("base64", text("base64", &base64)),
        ("base64 with a footer", text("base64", &list)),
        ("parts", parts(&lines, 3)),
        ("an encoded part", parts(&format!("\u{1}{base64}"), 2)),
        ("many parts", parts("x", 3_000)),
        ("unclosed", unclosed[..unclosed.len() - 20].to_vec()),
        ("carriage returns", old_mac),
        ("blank lines", [b"\r\n".repeat(200_000).as_slice(), b"Subject: x\r\n\r\nbody"].concat()),
        ("UTF-16", wide),
        ("headers", [b"X-Header: value\r\n".repeat(30_000).as_slice(), b"\r\nbody"].concat()),
        ("a long header", format!("Subject: x\r\nX: {}\r\nTo: a@x\r\n\r\nbody", "y".repeat(400_000)).into_bytes()),
        ("only a header", format!("X: {}", "y".repeat(400_000)).into_bytes()),
        ("only dashes", parts(&"\n--".repeat(200_000), 1)),
        ("binary", [b"\x7FELF\0\0".as_slice(), &[0; 300_000]].concat()),
    ]
}

#[test]
fn long_mail_says_the_same_from_the_spool() {
    let (_folder, spool) = tiny_spool();
    for (name, raw) in long_mails() {
        for limits in [MessageLimits::default(), MessageLimits { body_bytes: 100_000, ..MessageLimits::default() }] {
            if let Some(difference) = difference(&raw, &spool, &limits) {
                panic!("{name}: {:.2000}", difference);
            }
        }
    }
}

#[test]
fn parts_are_decoded_into_the_spool() {
    let (_folder, spool) = tiny_spool();
    let part = "Content-Type: application/pdf; name=a.pdf\nContent-Transfer-Encoding: base64\n\n";
    let raw = format!(
        "Content-Type: multipart/mixed; boundary=b\n\n--b\n{part}JVBERi0x{}\n--b\n{part}JVBERi0x\n--b--\n",
        "QUFB".repeat(100)
    );

    let email = mime::parse_spooled(&spooled(raw.as_bytes(), &spool), &spool, &MessageLimits::default()).unwrap();

    let SpoolableBytes::Spooled(large) = &email.attachments[0].content else { panic!("it is held") };
    assert_eq!(large.read_range(0..9).unwrap(), b"%PDF-1AAA");
    assert_eq!(large.len(), 306);
    assert_eq!(email.attachments[0].sniffed_type.as_deref(), Some("application/pdf"));
    assert_eq!(email.attachments[1].content.in_memory(), b"%PDF-1");
}
