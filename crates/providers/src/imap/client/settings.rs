//! Settings of a connection: address, security, credentials, timeouts, limits.

use std::time::Duration;

use domain::Secret;

/// A server and how to connect to it.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    pub host: String,
    pub port: u16,
    pub security: Security,
    /// Certificates (PEM) of authorities that are trusted in addition to the system's.
    pub custom_ca: Option<String>,
    /// Whether to use compression if it is offered; within one machine it only costs.
    pub compress: bool,
    pub timeouts: ImapTimeouts,
    pub limits: ResponseLimits,
}

impl ClientSettings {
    pub fn new(host: impl Into<String>, port: u16, security: Security) -> Self {
        Self {
            host: host.into(),
            port,
            security,
            custom_ca: None,
            compress: false,
            timeouts: ImapTimeouts::default(),
            limits: ResponseLimits::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte on (port 993).
    Implicit,
    /// TLS by STARTTLS (port 143); without it there is no connection.
    StartTls,
    /// No encryption, for servers on this machine.
    None,
}

/// Credentials of the login; the client uses the best method that the server offers.
#[derive(Debug, Clone)]
pub enum Credentials {
    Password {
        user: String,
        password: Secret<String>,
    },
    /// An OAuth 2.0 access token.
    Token {
        user: String,
        token: Secret<String>,
    },
}

/// How long the steps of a session may take.
#[derive(Debug, Clone, Copy)]
pub struct ImapTimeouts {
    /// Connecting, and the TLS handshake.
    pub connect: Duration,
    /// Time without a single byte. Shorter than a job's lease, so that a server that hangs costs the attempt and no more.
    pub read: Duration,
    /// One command. Guards against servers that send a byte now and then.
    pub command: Duration,
    /// One command that returns messages.
    pub stream: Duration,
}

impl Default for ImapTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            read: Duration::from_secs(30),
            command: Duration::from_secs(120),
            stream: Duration::from_secs(600),
        }
    }
}

/// Limits of what is read from a server.
#[derive(Debug, Clone, Copy)]
pub struct ResponseLimits {
    /// Bytes of one response, with its literals that are not messages.
    pub response_bytes: usize,
    /// Bytes of one SEARCH response: without ESEARCH, a million UIDs are one line of 8 MB.
    pub search_bytes: usize,
    /// Bytes of a message. A larger one fails; it is skipped unless it is absurdly large.
    pub message_bytes: u64,
    /// Bytes of a message that is buffered because the server sends its UID only after it.
    pub buffered_message_bytes: usize,
    /// Unsolicited responses during one command.
    pub unsolicited: usize,
    pub folders: usize,
    /// Ranges in a set of UIDs.
    pub ranges: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            response_bytes: 1 << 20,
            search_bytes: 16 << 20,
            message_bytes: 150 << 20,
            buffered_message_bytes: 4 << 20,
            unsolicited: 100_000,
            folders: 100_000,
            ranges: 2_000_000,
        }
    }
}
