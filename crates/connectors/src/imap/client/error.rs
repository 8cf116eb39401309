//! What can go wrong with a connection, what it means to the engine, and how to say it to people.

use std::fmt;
use std::io;

use domain::ConnectorError;

use super::refusal::{Class, Refusal};
use super::tls::TlsFault;

/// What was under way.
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

/// Some words of a server, for the person who set the mailbox up and for nobody else: they do not print as `Debug`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ServerText(String);

impl ServerText {
    /// One line of at most 200 printable characters.
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

/// After any of these but a [`ImapError::Refused`] the connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum ImapError {
    #[error("the connection failed during {}: {}", step.as_str(), kind)]
    Io { step: Step, kind: io::ErrorKind },
    #[error("no answer in time during {}", .0.as_str())]
    Timeout(Step),
    #[error("no TLS: {0}")]
    Tls(TlsFault),
    /// It answered, and not as an IMAP server does.
    #[error("it does not speak IMAP")]
    NotImap(ServerText),
    /// A command was answered with NO or BAD, or the greeting was a BYE.
    #[error("the server refused {}{}", .0.step.as_str(), .0.code_in_brackets())]
    Refused(Refusal),
    /// The server closes the connection, and says so.
    #[error("the server closed the connection during {}{}", .0.step.as_str(), .0.code_in_brackets())]
    Bye(Refusal),
    /// There is no way to do this that both sides know.
    #[error("{0}")]
    Unsupported(&'static str),
    /// An answer against the rules.
    #[error("{0}")]
    Protocol(&'static str),
    /// An answer, or a number of them, beyond our limits.
    #[error("{0}")]
    TooMuch(&'static str),
    /// Whoever takes the messages cannot.
    #[error("a message could not be taken")]
    Sink(#[source] io::Error),
    /// An earlier command did not come to its end.
    #[error("the connection is in the middle of an earlier command")]
    Broken,
}

impl ImapError {
    /// The refusal that it is, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) | Self::Bye(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// One sentence for the person who sets the mailbox up.
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
                // A name that cannot be resolved has no kind of its own.
                _ => format!("there is no server called {host}: check the name"),
            },
            Self::Io { step, kind } => format!("{server} broke off during {}: {kind}", step.as_str()),
            Self::Timeout(Step::Connect) => format!("{server} does not answer: check name, port and firewall"),
            Self::Timeout(Step::Tls | Step::Greeting) => {
                format!(
                    "{server} takes the connection but does not say anything: check whether the port wants TLS or not"
                )
            }
            Self::Timeout(step) => format!("{server} did not answer in time during {}", step.as_str()),
            Self::Tls(fault) => format!("no secure connection to {server}: {}", fault.for_people()),
            Self::NotImap(text) => format!("{server} does not speak IMAP: it answered with {}", what_it_is(text)),
            Self::Refused(refusal) | Self::Bye(refusal) => refusal.explain(&server),
            Self::Unsupported(what) => format!("{server} cannot be used: {what}"),
            Self::Protocol(what) | Self::TooMuch(what) => format!("{server} does not follow IMAP's rules: {what}"),
            Self::Sink(e) => format!("a message could not be stored: {e}"),
            Self::Broken => format!("the connection to {server} was given up earlier"),
        }
    }
}

/// A guess from the first bytes.
fn what_it_is(text: &ServerText) -> String {
    let said = text.for_people();
    let known = [
        ("220", "the greeting of an SMTP or FTP server"),
        ("+OK", "the greeting of a POP3 server"),
        ("HTTP/", "a web page"),
        ("SSH-", "the greeting of an SSH server"),
        ("\u{fffd}", "bytes that are no text: perhaps it wants TLS from the start"),
    ];
    match known.iter().find(|(beginning, _)| said.starts_with(beginning)) {
        Some((_, what)) => (*what).to_owned(),
        None if said.is_empty() => "an empty line".to_owned(),
        None => format!("“{}”", said.chars().take(60).collect::<String>()),
    }
}

/// What each failure means to the engine. Fixed phrases and response codes only.
impl From<&ImapError> for ConnectorError {
    fn from(error: &ImapError) -> Self {
        match error {
            ImapError::Io { .. } | ImapError::Timeout(_) | ImapError::Broken => Self::Unavailable(error.to_string()),
            ImapError::Sink(_) => Self::Unavailable(error.to_string()),
            // A certificate that has expired is replaced by somebody else; the mailbox needs nothing from its owner.
            ImapError::Tls(_) => Self::Unavailable(error.to_string()),
            ImapError::Refused(refusal) | ImapError::Bye(refusal) => match refusal.class {
                Class::BadCredentials => Self::Unauthorized(error.to_string()),
                Class::Throttled => Self::Throttled { retry_after: refusal.retry_after },
                Class::Transient => Self::Unavailable(error.to_string()),
                Class::Denied | Class::NoSuchFolder | Class::Fault => Self::Protocol(error.to_string()),
            },
            ImapError::NotImap(_) | ImapError::Unsupported(_) | ImapError::Protocol(_) | ImapError::TooMuch(_) => {
                Self::Protocol(error.to_string())
            }
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
    fn what_a_server_said_is_for_people_and_not_for_logs() {
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
    fn what_is_wrong_with_the_connection_is_tried_again_and_what_is_wrong_with_answers_is_not() {
        let again = [
            ImapError::Io { step: Step::Fetch, kind: io::ErrorKind::UnexpectedEof },
            ImapError::Timeout(Step::Login),
            ImapError::Broken,
            ImapError::Tls(TlsFault::Expired),
        ];
        for error in again {
            assert!(matches!(ConnectorError::from(&error), ConnectorError::Unavailable(_)), "{error}");
        }
        let final_ones = [ImapError::Protocol("x"), ImapError::TooMuch("x"), ImapError::Unsupported("x")];
        for error in final_ones {
            assert!(matches!(ConnectorError::from(&error), ConnectorError::Protocol(_)), "{error}");
        }
    }
}
