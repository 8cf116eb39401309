//! The bytes of messages. All mailboxes share a few hundred letters, and each letter is encoded once: what differs
//! between two messages is a Message-ID.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use mail_parser::{Address, MessageParser, MimeHeaders};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::mail::rng::Rng;
use crate::scripted;

#[derive(Debug)]
pub struct Letters {
    letters: Vec<Letter>,
}

#[derive(Debug)]
struct Letter {
    before: Bytes,
    after: Bytes,
    /// For each alphabet.
    encoded: [Encoded; 2],
    facts: OnceLock<Facts>,
}

/// A letter's halves in base64.
#[derive(Debug, Default)]
struct Encoded {
    /// `before`, up to its last whole group of three bytes.
    before: OnceLock<Bytes>,
    /// `after` from its first, second and third byte on: one of them begins where a group begins.
    after: [OnceLock<Bytes>; 3],
}

/// Base64 comes in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// base64url without padding.
    Url,
    /// The ordinary one, padded.
    Standard,
}

impl Alphabet {
    fn encode(self, bytes: &[u8]) -> Bytes {
        Bytes::from(match self {
            Self::Url => URL_SAFE_NO_PAD.encode(bytes),
            Self::Standard => STANDARD.encode(bytes),
        })
    }
}

/// What a search and a snippet need to know of a message.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Lower-case.
    pub subject: String,
    /// Lower-case: name and address.
    pub from: String,
    pub snippet: String,
    pub has_attachment: bool,
}

/// What a message consists of.
#[derive(Debug, Clone)]
pub enum Content {
    /// A shared letter under a Message-ID of its own.
    Letter { letter: u32, message_id: Box<str> },
    /// Somebody gave the bytes.
    Own(Bytes),
}

/// Bytes that a script gives; in JSON as base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBytes(pub Bytes);

impl Serialize for RawBytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for RawBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(|bytes| Self(bytes.into())).map_err(serde::de::Error::custom)
    }
}

impl Letters {
    /// # Panics
    ///
    /// Without a single letter.
    pub fn new(seed: u64, count: usize) -> Self {
        let halves = scripted::Letters::new(seed, count);
        let letter = |half: &scripted::Letter| Letter {
            before: half.before.clone(),
            after: half.after.clone(),
            encoded: Default::default(),
            facts: OnceLock::new(),
        };
        Self { letters: halves.all().iter().map(letter).collect() }
    }

    /// How many different ones there are.
    pub fn count(&self) -> usize {
        self.letters.len()
    }

    /// Some letter under this Message-ID.
    pub fn write(&self, rng: &mut Rng, message_id: &str) -> Content {
        Content::Letter { letter: rng.below(self.letters.len()) as u32, message_id: message_id.into() }
    }

    /// The bytes one after the other.
    pub fn pieces(&self, content: &Content) -> Vec<Bytes> {
        match content {
            Content::Letter { letter, message_id } => {
                let letter = &self.letters[*letter as usize];
                vec![letter.before.clone(), Bytes::from(field(message_id)), letter.after.clone()]
            }
            Content::Own(bytes) => vec![bytes.clone()],
        }
    }

    pub fn size(&self, content: &Content) -> usize {
        match content {
            Content::Letter { letter, message_id } => {
                let letter = &self.letters[*letter as usize];
                letter.before.len() + field(message_id).len() + letter.after.len()
            }
            Content::Own(bytes) => bytes.len(),
        }
    }

    /// Base64 in pieces: those of a letter are encoded once and shared.
    pub fn encoded(&self, content: &Content, alphabet: Alphabet) -> Vec<Bytes> {
        match content {
            Content::Letter { letter, message_id } => {
                self.letters[*letter as usize].encoded(&field(message_id), alphabet)
            }
            Content::Own(bytes) => vec![alphabet.encode(bytes)],
        }
    }

    /// In lower-case hexadecimal digits.
    pub fn sha256(&self, content: &Content) -> String {
        let mut hasher = Sha256::new();
        self.pieces(content).iter().for_each(|piece| hasher.update(piece));
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn facts(&self, content: &Content) -> Facts {
        match content {
            Content::Letter { letter, .. } => {
                let letter = &self.letters[*letter as usize];
                letter.facts.get_or_init(|| Facts::read(&[&letter.before[..], &letter.after].concat())).clone()
            }
            Content::Own(bytes) => Facts::read(bytes),
        }
    }

    /// What `rfc822msgid:` finds it by.
    pub fn message_id(&self, content: &Content) -> Option<String> {
        match content {
            Content::Letter { message_id, .. } => Some(message_id.to_string()),
            Content::Own(bytes) => MessageParser::default().parse_headers(&bytes[..])?.message_id().map(str::to_owned),
        }
    }
}

fn field(message_id: &str) -> Vec<u8> {
    format!("Message-ID: <{message_id}>\r\n").into_bytes()
}

impl Letter {
    fn encoded(&self, own: &[u8], alphabet: Alphabet) -> Vec<Bytes> {
        let kept = &self.encoded[alphabet as usize];
        let whole = self.before.len() - self.before.len() % 3;
        let mut middle = self.before[whole..].to_vec();
        middle.extend_from_slice(own);
        // As much of what follows as makes the middle end with a whole group.
        let borrowed = ((3 - middle.len() % 3) % 3).min(self.after.len());
        middle.extend_from_slice(&self.after[..borrowed]);
        vec![
            kept.before.get_or_init(|| alphabet.encode(&self.before[..whole])).clone(),
            alphabet.encode(&middle),
            kept.after[borrowed].get_or_init(|| alphabet.encode(&self.after[borrowed..])).clone(),
        ]
    }
}

impl Facts {
    fn read(raw: &[u8]) -> Self {
        let Some(message) = MessageParser::default().parse(raw) else { return Self::default() };
        let from = message.from().and_then(Address::first);
        let from = from.map(|who| format!("{} {}", who.name().unwrap_or_default(), who.address().unwrap_or_default()));
        let text = message.body_text(0).unwrap_or_default();
        Self {
            subject: message.subject().unwrap_or_default().to_lowercase(),
            from: from.unwrap_or_default().to_lowercase(),
            snippet: text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(100).collect(),
            has_attachment: message.attachments().any(|part| part.attachment_name().is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_in_pieces_is_what_is_encoded_whole() {
        let letters = Letters::new(1, 12);
        let mut rng = Rng::new(2);

        for number in 0..200 {
            let content = letters.write(&mut rng, &format!("{}@sim.example", "x".repeat(number % 7)));

            let raw = letters.pieces(&content).concat();
            assert_eq!(raw.len(), letters.size(&content));
            assert_eq!(letters.encoded(&content, Alphabet::Url).concat(), URL_SAFE_NO_PAD.encode(&raw).as_bytes());
            assert_eq!(letters.encoded(&content, Alphabet::Standard).concat(), STANDARD.encode(&raw).as_bytes());
        }
    }

    #[test]
    fn the_facts_are_those_of_the_letter() {
        let letters = Letters::new(1, 3);
        let raw = "From: Ann <ann@x.test>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <a@x.test>\r\n\r\nHello\r\nyou\r\n";
        let content = Content::Own(Bytes::from_static(raw.as_bytes()));

        let facts = letters.facts(&content);

        assert_eq!((facts.subject.as_str(), facts.from.as_str()), ("grüße", "ann ann@x.test"));
        assert_eq!((facts.snippet.as_str(), facts.has_attachment), ("Hello you", false));
        assert_eq!(letters.message_id(&content).as_deref(), Some("a@x.test"));
    }
}
