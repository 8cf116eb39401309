//! Upper bounds on what is kept of one message, whatever its bytes claim (P9).

/// Bounds for parsing one message. Exceeding one is recorded as a defect of the stored email, never a failure; only a
/// message over `message_bytes` is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLimits {
    /// The raw message; a larger one is refused. Large messages are spooled to disk.
    pub message_bytes: u64,
    /// One decoded attachment; a larger one is recorded without its bytes.
    pub attachment_bytes: u64,
    /// All decoded parts of a message together. Most of them are on disk when there are many.
    pub decoded_bytes: u64,
    /// The header section of a message; the rest is kept in the raw bytes only.
    pub header_bytes: usize,
    /// Nested levels of multiparts and attached messages.
    pub nesting: usize,
    /// Leaf parts of a message.
    pub parts: usize,
    /// Characters of body text, and of body HTML, that go into rows.
    pub body_bytes: usize,
}

impl Default for MessageLimits {
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
