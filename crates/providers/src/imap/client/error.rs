//! Errors of a connection, their meaning to the engine, and their explanation to people.

use std::fmt;
use std::io;

use domain::ConnectorError;

use super::refusal::{Refusal, RefusalClass};
use super::tls::TlsFault;

/// The step of a session in which an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Connect,
    Tls,
    Greeting,
    StartTls,
    Capability,
    Login,
    Id,
    Enable,
    Compress,
    List,
    Status,
    Examine,
    Search,
    Fetch,
    Idle,
    Noop,
    Logout,
}

impl Step {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connecting",
            Self::Tls => "setting up TLS",
            Self::Greeting => "the greeting",
            Self::StartTls => "STARTTLS",
            Self::Capability => "CAPABILITY",
            Self::Login => "the login",
            Self::Id => "ID",
            Self::Enable => "ENABLE",
            Self::Compress => "COMPRESS",
            Self::List => "LIST",
            Self::Status => "STATUS",
            Self::Examine => "EXAMINE",
            Self::Search => "SEARCH",
            Self::Fetch => "FETCH",
            Self::Idle => "IDLE",
            Self::Noop => "NOOP",
            Self::Logout => "LOGOUT",
        }
    }
}

/// Text of a server, only for the person who set the mailbox up: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ServerText(String);

impl ServerText {
    /// Keeps one line of at most 200 printable characters.
    pub fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(800)]);
        let shown = text.trim().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
        Self(shown.take(200).collect())
    }

    pub fn for_people(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ServerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} characters)", self.0.len())
    }
}

/// An error of the client. After any but [`ImapError::Refused`] the connection is no longer usable.
#[derive(Debug, thiserror::Error)]
pub enum ImapError {
    #[error("the connection failed during {}: {}", step.as_str(), kind)]
    Io { step: Step, kind: io::ErrorKind },
    #[error("no answer in time during {}", .0.as_str())]
    Timeout(Step),
    #[error("no TLS: {0}")]
    Tls(TlsFault),
    /// The server's greeting is not one of IMAP.
    #[error("it does not speak IMAP")]
    NotImap(ServerText),
    /// A command was answered with NO or BAD, or the greeting was a BYE.
    #[error("the server refused {}{}", .0.step.as_str(), .0.code_in_brackets())]
    Refused(Refusal),
    /// The server closes the connection with a BYE.
    #[error("the server closed the connection during {}{}", .0.step.as_str(), .0.code_in_brackets())]
    Bye(Refusal),
    /// The server lacks a feature that is required.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A response violates the protocol.
    #[error("{0}")]
    Protocol(&'static str),
    /// A response, or the number of responses, exceeds our limits.
    #[error("{0}")]
    LimitExceeded(&'static str),
    /// The sink cannot take a message.
    #[error("a message could not be stored")]
    Sink(#[source] io::Error),
    /// An earlier command was not completed.
    #[error("the connection is in the middle of an earlier command")]
    Broken,
}

impl ImapError {
    /// Returns the refusal, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) | Self::Bye(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Explains the error in one sentence, for the person who sets the mailbox up.
    pub fn explain(&self, host: &str, port: u16) -> String {
        let server = format!("the server at {host}:{port}");
        match self {
            Self::Io { step: Step::Connect, kind } => match kind {
                io::ErrorKind::ConnectionRefused => format!("nothing listens at {host}:{port}: check the port"),
                io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::AddrNotAvailable
                | io::ErrorKind::TimedOut => format!("{server} cannot be reached: {kind}"),
                // A failed name resolution has no error kind of its own.
                _ => format!("there is no server called {host}: check the name"),
            },
            Self::Io { step, kind } => format!("{server} broke off during {}: {kind}", step.as_str()),
            Self::Timeout(Step::Connect) => format!("{server} does not answer: check name, port and firewall"),
            Self::Timeout(Step::Tls | Step::Greeting) => {
                format!("{server} accepts the connection but sends nothing: check whether the port expects TLS")
            }
            Self::Timeout(step) => format!("{server} did not answer in time during {}", step.as_str()),
            Self::Tls(fault) => format!("no secure connection to {server}: {}", fault.for_people()),
            Self::NotImap(text) => format!("{server} does not speak IMAP: it answered with {}", guess_protocol(text)),
            Self::Refused(refusal) | Self::Bye(refusal) => refusal.explain(&server),
            Self::Unsupported(what) => format!("{server} cannot be used: {what}"),
            Self::Protocol(what) | Self::LimitExceeded(what) => {
                format!("{server} does not follow IMAP's rules: {what}")
            }
            Self::Sink(e) => format!("a message could not be stored: {e}"),
            Self::Broken => format!("the connection to {server} was given up earlier"),
        }
    }
}

/// Guesses from the first bytes what a server speaks instead of IMAP.
fn guess_protocol(text: &ServerText) -> String {
    let text = text.for_people();
    let known = [
        ("220", "the greeting of an SMTP or FTP server"),
        ("+OK", "the greeting of a POP3 server"),
        ("HTTP/", "a web page"),
        ("SSH-", "the greeting of an SSH server"),
        ("\u{fffd}", "bytes that are no text: perhaps it wants TLS from the start"),
    ];
    match known.iter().find(|(beginning, _)| text.starts_with(beginning)) {
        Some((_, protocol)) => (*protocol).to_owned(),
        None if text.is_empty() => "an empty line".to_owned(),
        None => format!("“{}”", text.chars().take(60).collect::<String>()),
    }
}

/// The meaning of each error to the engine. Its text has fixed phrases and response codes only.
impl From<&ImapError> for ConnectorError {
    fn from(error: &ImapError) -> Self {
        match error {
            ImapError::Io { .. } | ImapError::Timeout(_) | ImapError::Broken => Self::Unavailable(error.to_string()),
            ImapError::Sink(_) => Self::Unavailable(error.to_string()),
            // The server's operator renews an expired certificate; the mailbox's owner cannot do anything.
            ImapError::Tls(_) => Self::Unavailable(error.to_string()),
            ImapError::Refused(refusal) | ImapError::Bye(refusal) => match refusal.class {
                RefusalClass::BadCredentials => Self::Unauthorized(error.to_string()),
                RefusalClass::Throttled => Self::Throttled { retry_after: refusal.retry_after },
                RefusalClass::Transient => Self::Unavailable(error.to_string()),
                RefusalClass::Denied | RefusalClass::NoSuchFolder | RefusalClass::Fault => {
                    Self::Protocol(error.to_string())
                }
            },
            ImapError::NotImap(_)
            | ImapError::Unsupported(_)
            | ImapError::Protocol(_)
            | ImapError::LimitExceeded(_) => Self::Protocol(error.to_string()),
        }
    }
}

impl From<ImapError> for ConnectorError {
    fn from(error: ImapError) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_is_shown_to_people_and_not_logged() {
        let error = ImapError::NotImap(ServerText::new(b"220 mail.example.org ESMTP secret\r\n"));

        let engine = ConnectorError::from(&error);
        assert!(!format!("{error} {error:?} {engine}").contains("secret"));
        assert_eq!(
            error.explain("mail.example.org", 25),
            "the server at mail.example.org:25 does not speak IMAP: it answered with the greeting of an SMTP or FTP server"
        );
        let other = ImapError::NotImap(ServerText::new(b"hello\x1b[31m there"));
        assert!(other.explain("h", 1).ends_with("it answered with “hello\u{fffd}[31m there”"));
    }

    #[test]
    fn connection_errors_are_retried_and_protocol_errors_not() {
        let retried = [
            ImapError::Io { step: Step::Fetch, kind: io::ErrorKind::UnexpectedEof },
            ImapError::Timeout(Step::Login),
            ImapError::Broken,
            ImapError::Tls(TlsFault::Expired),
        ];
        for error in retried {
            assert!(matches!(ConnectorError::from(&error), ConnectorError::Unavailable(_)), "{error}");
        }
        let final_ones = [ImapError::Protocol("x"), ImapError::LimitExceeded("x"), ImapError::Unsupported("x")];
        for error in final_ones {
            assert!(matches!(ConnectorError::from(&error), ConnectorError::Protocol(_)), "{error}");
        }
    }
}
