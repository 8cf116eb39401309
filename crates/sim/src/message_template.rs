//! Generated letters, cut where the Message-ID stands, so that many messages can share one letter.

use bytes::Bytes;

use crate::mail::{Generator, Profile};

const MESSAGE_ID_FIELD: &[u8] = b"\r\nMessage-ID: <";

/// A letter in two halves, with the position of the Message-ID between them.
#[derive(Debug)]
pub struct MessageTemplate {
    pub before: Bytes,
    pub after: Bytes,
}

impl MessageTemplate {
    /// Generates `count` letters.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub fn generate(seed: u64, count: usize) -> Vec<Self> {
        assert!(count > 0, "mail needs at least one letter");
        let generator = Generator::new(seed, Profile::ordinary(seed, count));
        generator.map(|message| Self::cut(message.raw)).collect()
    }

    fn cut(raw: Vec<u8>) -> Self {
        let raw = Bytes::from(raw);
        // A sent letter begins with its Message-ID; a delivered one has the servers' fields before it.
        let start = raw.windows(MESSAGE_ID_FIELD.len()).position(|window| window == MESSAGE_ID_FIELD);
        let start = start.map_or(0, |at| at + 2);
        let line = raw[start..].windows(2).position(|window| window == b"\r\n").map_or(0, |at| at + 2);
        Self { before: raw.slice(..start), after: raw.slice(start + line..) }
    }
}
