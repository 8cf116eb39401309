//! The bytes of messages. Ten thousand mailboxes share a few hundred generated letters, each under a Message-ID of its own.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::mail::rng::Rng;
use crate::mail::{Generator, Profile};

const FIELD: &[u8] = b"\r\nMessage-ID: <";

/// A letter in two halves, with the place of the Message-ID between them.
#[derive(Debug)]
pub(crate) struct Letter {
    pub before: Bytes,
    pub after: Bytes,
}

#[derive(Debug)]
pub struct Letters(Vec<Letter>);

/// The bytes of one message. A copy costs nothing but the counts of its halves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw([Bytes; 3]);

impl Letters {
    /// # Panics
    ///
    /// Without a single letter.
    pub fn new(seed: u64, count: usize) -> Self {
        assert!(count > 0, "mail needs at least one letter");
        let generator = Generator::new(seed, Profile::ordinary(seed, count));
        Self(generator.map(|message| Letter::halved(message.raw)).collect())
    }

    pub(crate) fn all(&self) -> &[Letter] {
        &self.0
    }

    /// Some letter under this Message-ID. The mark goes into a field of its own, so that a draft that is edited has other
    /// bytes even if the same letter comes up again.
    pub fn write(&self, rng: &mut Rng, message_id: &str, mark: Option<u32>) -> Raw {
        let Letter { before, after } = rng.pick(&self.0);
        let mark = mark.map(|mark| format!("X-Scripted-Revision: {mark}\r\n")).unwrap_or_default();
        let own = format!("Message-ID: <{message_id}>\r\n{mark}");
        Raw([before.clone(), Bytes::from(own), after.clone()])
    }
}

impl Letter {
    fn halved(raw: Vec<u8>) -> Self {
        let raw = Bytes::from(raw);
        // A letter that was sent begins with its Message-ID, a delivered one has the servers' fields before it.
        let start = raw.windows(FIELD.len()).position(|window| window == FIELD).map_or(0, |at| at + 2);
        let line = raw[start..].windows(2).position(|window| window == b"\r\n").map_or(0, |at| at + 2);
        Self { before: raw.slice(..start), after: raw.slice(start + line..) }
    }
}

impl Raw {
    pub fn pieces(&self) -> &[Bytes; 3] {
        &self.0
    }

    pub fn size(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }

    /// In lower-case hexadecimal digits.
    pub fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        self.0.iter().for_each(|piece| hasher.update(piece));
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_whole_and_carries_its_own_message_id() {
        let letters = Letters::new(1, 30);
        let mut rng = Rng::new(2);

        for number in 0..100 {
            let raw = letters.write(&mut rng, &format!("{number}@scripted.example"), None);

            let text = raw.to_vec();
            let parsed = mail_parser::MessageParser::default().parse(&text).unwrap();
            assert_eq!(parsed.message_id(), Some(format!("{number}@scripted.example").as_str()));
            assert!(parsed.from().is_some() && parsed.date().is_some());
            assert_eq!(text.len(), raw.size());
        }
    }
}
