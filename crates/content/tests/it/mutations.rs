//! Broken copies of the fixtures: whatever happens to a mail on its way, parsing it ends, within the limits.

use std::fs;

use content::mime;
use domain::MessageLimits;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::fixtures::{mails, texts};

/// Returns limits so small that fixtures exceed them.
pub fn tight() -> MessageLimits {
    MessageLimits {
        attachment_bytes: 200,
        decoded_bytes: 2000,
        header_bytes: 1000,
        nesting: 4,
        parts: 10,
        body_bytes: 100,
        ..MessageLimits::default()
    }
}

#[derive(Debug, Clone)]
pub enum Mutation {
    Cut(usize),
    Flip(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Repeat(usize, usize, usize),
}

pub fn change() -> impl Strategy<Value = Mutation> {
    let at = 0..5000usize;
    // Pieces that mean something to a parser hurt more than random bytes.
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..20),
        prop::sample::select(vec![
            "\r\n",
            "\n\n",
            "--",
            "=?",
            "?=",
            "\"",
            "<",
            ">",
            "(",
            ";",
            "=",
            "\0",
            "begin 644 a\n",
            "é"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        at.clone().prop_map(Mutation::Cut),
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Mutation::Flip(at, byte)),
        (at.clone(), piece).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        (at.clone(), 1..200usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (at, 1..200usize, 1..20usize).prop_map(|(at, length, times)| Mutation::Repeat(at, length, times)),
    ]
}

pub fn apply(raw: &mut Vec<u8>, change: &Mutation) {
    let place = |at: usize| at % (raw.len() + 1);
    match change {
        Mutation::Cut(at) => raw.truncate(place(*at)),
        Mutation::Flip(at, byte) => {
            let at = place(*at);
            if let Some(found) = raw.get_mut(at) {
                *found = *byte;
            }
        }
        Mutation::Insert(at, piece) => {
            let at = place(*at);
            raw.splice(at..at, piece.iter().copied());
        }
        Mutation::Remove(at, length) => {
            let at = place(*at);
            let end = (at + length).min(raw.len());
            raw.drain(at..end);
        }
        Mutation::Repeat(at, length, times) => {
            let at = place(*at);
            let end = (at + length).min(raw.len());
            let piece = raw[at..end].repeat(*times);
            raw.splice(at..at, piece);
        }
    }
}

#[test]
fn mutated_mail_is_parsed_within_the_limits() {
    let originals: Vec<Vec<u8>> = mails().iter().map(|mail| fs::read(mail).unwrap()).collect();
    let config = Config { cases: 1500, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (0..originals.len(), proptest::collection::vec(change(), 1..6));

    let outcome = runner.run(&strategy, |(which, changes)| {
        // Large fixtures are large for their own reasons; their starts are as good as any.
        let original = &originals[which];
        let mut raw = original[..original.len().min(6000)].to_vec();
        for change in &changes {
            apply(&mut raw, change);
        }
        for limits in [MessageLimits::default(), tight()] {
            check(&raw, &limits)?;
        }
        Ok(())
    });

    outcome.unwrap();
}

#[test]
fn every_fixture_respects_tight_limits() {
    for mail in mails() {
        check(&fs::read(&mail).unwrap(), &tight()).unwrap_or_else(|e| panic!("{}: {e}", mail.display()));
    }
}

fn check(raw: &[u8], limits: &MessageLimits) -> Result<(), TestCaseError> {
    let email = mime::parse(raw, limits);

    for text in texts(&email) {
        prop_assert!(!text.contains('\0'), "NUL in {text:?}");
    }
    for body in [&email.body_text, &email.body_html] {
        prop_assert!(body.as_ref().map_or(0, String::len) <= limits.body_bytes);
    }
    prop_assert!(email.attachments.len() <= limits.parts);
    let bytes: u64 = email.attachments.iter().map(|attachment| attachment.content.len()).sum();
    prop_assert!(bytes <= limits.decoded_bytes, "{bytes} bytes of attachments");
    for attachment in &email.attachments {
        prop_assert!(attachment.content.len() <= limits.attachment_bytes);
        prop_assert!(!attachment.is_cut || attachment.content.is_empty());
        prop_assert!(attachment.filename.as_deref() != Some(""));
    }
    let mut sorted = email.defects.clone();
    sorted.sort();
    sorted.dedup();
    prop_assert_eq!(&sorted, &email.defects);
    prop_assert_eq!(format!("{email:?}"), format!("{:?}", mime::parse(raw, limits)));
    Ok(())
}
