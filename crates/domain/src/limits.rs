//! How much of one message we are willing to hold, whatever its bytes say (P9).

/// Passing one of these is a defect on a stored email, never a failure; only a message over `message_bytes` is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// A raw message larger than this is refused. A large one is not held in memory.
    pub message_bytes: u64,
    /// One decoded attachment; a larger one is recorded without its bytes.
    pub attachment_bytes: u64,
    /// All decoded parts of a message together. Most of them are on disk when there are many.
    pub decoded_bytes: u64,
    /// Header section of a message; what is beyond is kept in the raw bytes only.
    pub header_bytes: usize,
    /// Multipart and attached-message levels.
    pub nesting: usize,
    /// Leaf parts of a message.
    pub parts: usize,
    /// Characters of body text, and of body HTML, that go into rows.
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 256 << 20,
            attachment_bytes: 256 << 20,
            decoded_bytes: 256 << 20,
            header_bytes: 256 << 10,
            nesting: 32,
            parts: 1000,
            body_bytes: 4 << 20,
        }
    }
}
