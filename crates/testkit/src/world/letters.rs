//! The bytes of messages: a few generated letters that all mailboxes share, each message under a Message-ID of its own.

use sim::mail::{Generator, Profile};

use super::random::SeededRandom;

const MESSAGE_ID_FIELD: &[u8] = b"\r\nMessage-ID: <";

/// A letter in two halves; the Message-ID goes between them.
#[derive(Debug)]
struct HalvedLetter {
    before: Vec<u8>,
    after: Vec<u8>,
}

#[derive(Debug)]
pub struct LetterStock(Vec<HalvedLetter>);

impl LetterStock {
    pub fn new(seed: u64, count: usize) -> Self {
        assert!(count > 0, "mail needs at least one letter");
        let generator = Generator::new(seed, Profile::ordinary(seed, count));
        Self(generator.map(|message| HalvedLetter::split(&message.raw)).collect())
    }

    /// Returns some letter under this Message-ID. The revision of a draft is a header of its own, so that each text of it
    /// has other bytes, even if the same letter comes up again.
    pub fn write(&self, random: &mut SeededRandom, message_id: &str, revision: Option<u32>) -> Vec<u8> {
        let letter = random.pick(&self.0);
        let revision = revision.map(|revision| format!("X-Revision: {revision}\r\n")).unwrap_or_default();
        let own = format!("Message-ID: <{message_id}>\r\n{revision}");
        [&letter.before, own.as_bytes(), &letter.after].concat()
    }
}

impl HalvedLetter {
    fn split(raw: &[u8]) -> Self {
        // A letter that was sent begins with its Message-ID, a delivered one has the servers' fields before it.
        let start = position(raw, MESSAGE_ID_FIELD).map_or(0, |at| at + 2);
        let line = position(&raw[start..], b"\r\n").map_or(0, |at| at + 2);
        Self { before: raw[..start].to_vec(), after: raw[start + line..].to_vec() }
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letter_carries_its_own_message_id() {
        let letters = LetterStock::new(1, 30);
        let mut random = SeededRandom::new(2);

        for number in 0..100 {
            let raw = letters.write(&mut random, &format!("{number}@world.example"), None);

            let parsed = content::mime::parse(&raw, &domain::MessageLimits::default());
            assert_eq!(parsed.message_id.as_deref(), Some(format!("{number}@world.example").as_str()));
            assert!(parsed.from.is_some() && parsed.sent_at.is_some());
        }
    }
}
