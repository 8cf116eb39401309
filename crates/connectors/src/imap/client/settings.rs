//! What a connection is made with.

use std::time::Duration;

use domain::Secret;

/// Where a server is and how to talk to it.
#[derive(Debug, Clone)]
pub struct Settings {
    pub host: String,
    pub port: u16,
    pub security: Security,
    /// Certificates, as PEM, of authorities that are trusted beside those of the system.
    pub own_authority: Option<String>,
    /// Whether to ask for compression where it is offered; between two programs of one machine it only costs.
    pub compress: bool,
    pub deadlines: Deadlines,
    pub limits: Limits,
}

impl Settings {
    pub fn new(host: impl Into<String>, port: u16, security: Security) -> Self {
        Self {
            host: host.into(),
            port,
            security,
            own_authority: None,
            compress: false,
            deadlines: Deadlines::default(),
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte on; port 993.
    Implicit,
    /// Port 143: TLS after one command, or no connection.
    StartTls,
    /// Nothing is hidden. For servers on this machine.
    None,
}

/// How to log in. The method is the best that the server offers.
#[derive(Debug, Clone)]
pub enum Credentials {
    Password {
        user: String,
        password: Secret<String>,
    },
    /// An access token of OAuth 2.0.
    Token {
        user: String,
        token: Secret<String>,
    },
}

/// When we stop waiting.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Until there is a connection, with TLS.
    pub connect: Duration,
    /// Without a single byte. Shorter than a job's lease, so that a server that hangs costs the attempt and no more.
    pub silence: Duration,
    /// For one command. Against servers that send a byte now and then.
    pub command: Duration,
    /// For one command that brings messages.
    pub stream: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), silence: seconds(30), command: seconds(120), stream: seconds(600) }
    }
}

/// How much of what a server says is taken.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one answer, with the literals in it that are not messages.
    pub answer: usize,
    /// Bytes of one answer that lists UIDs: without ESEARCH a million of them is one line of 8 MB.
    pub search: usize,
    /// Bytes of a message. A longer one fails; it is skipped if it is not absurdly long.
    pub message: u64,
    /// Bytes of a message that are kept in memory when a server tells only behind them whose they are.
    pub held: usize,
    /// Answers during one command that nobody asked for.
    pub unasked: usize,
    pub folders: usize,
    /// Ranges in a set of UIDs.
    pub ranges: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer: 1 << 20,
            search: 16 << 20,
            message: 150 << 20,
            held: 4 << 20,
            unasked: 100_000,
            folders: 100_000,
            ranges: 2_000_000,
        }
    }
}
