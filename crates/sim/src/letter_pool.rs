//! A pool of generated letters that all mailboxes share. Two messages differ in their Message-ID only, so each letter
//! is encoded once.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use mail_parser::{Address, MessageParser, MimeHeaders};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::mail::rng::Rng;
use crate::message_template::MessageTemplate;

#[derive(Debug)]
pub struct LetterPool {
    letters: Vec<PooledLetter>,
}

#[derive(Debug)]
struct PooledLetter {
    before: Bytes,
    after: Bytes,
    /// One for each alphabet.
    encoded: [EncodedHalves; 2],
    facts: OnceLock<MessageFacts>,
}

/// Both halves of a letter in base64.
#[derive(Debug, Default)]
struct EncodedHalves {
    /// `before`, up to its last whole group of three bytes.
    before: OnceLock<Bytes>,
    /// `after` from its first, second and third byte on; one of them is aligned to a group of three.
    after: [OnceLock<Bytes>; 3],
}

/// The two base64 alphabets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// base64url without padding.
    Url,
    /// Standard base64 with padding.
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

/// What search and snippets need of a message.
#[derive(Debug, Clone, Default)]
pub struct MessageFacts {
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
    /// Bytes given by a script.
    Own(Bytes),
}

/// Bytes given by a script; base64 in JSON.
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

impl LetterPool {
    /// Generates `count` letters.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub fn new(seed: u64, count: usize) -> Self {
        let letters = MessageTemplate::generate(seed, count).into_iter();
        Self { letters: letters.map(PooledLetter::new).collect() }
    }

    /// Returns the number of different letters.
    pub fn count(&self) -> usize {
        self.letters.len()
    }

    /// Picks a random letter and gives it this Message-ID.
    pub fn write(&self, rng: &mut Rng, message_id: &str) -> Content {
        Content::Letter { letter: rng.below(self.letters.len()) as u32, message_id: message_id.into() }
    }

    /// Returns the raw message in pieces.
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

    /// Returns the message in base64, in pieces; those of a letter are encoded once and shared.
    pub fn encoded(&self, content: &Content, alphabet: Alphabet) -> Vec<Bytes> {
        match content {
            Content::Letter { letter, message_id } => {
                self.letters[*letter as usize].encoded(&field(message_id), alphabet)
            }
            Content::Own(bytes) => vec![alphabet.encode(bytes)],
        }
    }

    /// Returns SHA-256 of the raw message in lower-case hexadecimal digits.
    pub fn sha256(&self, content: &Content) -> String {
        let mut hasher = Sha256::new();
        self.pieces(content).iter().for_each(|piece| hasher.update(piece));
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn facts(&self, content: &Content) -> MessageFacts {
        match content {
            Content::Letter { letter, .. } => {
                let letter = &self.letters[*letter as usize];
                letter.facts.get_or_init(|| MessageFacts::read(&[&letter.before[..], &letter.after].concat())).clone()
            }
            Content::Own(bytes) => MessageFacts::read(bytes),
        }
    }

    /// Returns the Message-ID, which `rfc822msgid:` searches for.
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

impl PooledLetter {
    fn new(halves: MessageTemplate) -> Self {
        let MessageTemplate { before, after } = halves;
        Self { before, after, encoded: Default::default(), facts: OnceLock::new() }
    }

    fn encoded(&self, own: &[u8], alphabet: Alphabet) -> Vec<Bytes> {
        let kept = &self.encoded[alphabet as usize];
        let whole = self.before.len() - self.before.len() % 3;
        let mut middle = self.before[whole..].to_vec();
        middle.extend_from_slice(own);
        // Borrow from `after` so that the middle ends with a whole group of three.
        let borrowed = ((3 - middle.len() % 3) % 3).min(self.after.len());
        middle.extend_from_slice(&self.after[..borrowed]);
        vec![
            kept.before.get_or_init(|| alphabet.encode(&self.before[..whole])).clone(),
            alphabet.encode(&middle),
            kept.after[borrowed].get_or_init(|| alphabet.encode(&self.after[borrowed..])).clone(),
        ]
    }
}

impl MessageFacts {
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
    fn pieces_encode_like_the_whole_message() {
        let letters = LetterPool::new(1, 12);
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
    fn facts_are_read_from_the_message() {
        let letters = LetterPool::new(1, 3);
        let raw = "From: Ann <ann@x.test>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: <a@x.test>\r\n\r\nHello\r\nyou\r\n";
        let content = Content::Own(Bytes::from_static(raw.as_bytes()));

        let facts = letters.facts(&content);

        assert_eq!((facts.subject.as_str(), facts.from.as_str()), ("grüße", "ann ann@x.test"));
        assert_eq!((facts.snippet.as_str(), facts.has_attachment), ("Hello you", false));
        assert_eq!(letters.message_id(&content).as_deref(), Some("a@x.test"));
    }
}
