//! Classifies NO, BAD and BYE responses by a table of known response codes and texts, which is searched in order.

use std::time::Duration;

use super::error::{ServerText, Step};
use super::lex;

/// What a refusal means to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalClass {
    /// The credentials do not work until their owner has done something.
    BadCredentials,
    /// Too many calls, connections or bytes: wait.
    Throttled,
    /// A temporary failure.
    Transient,
    /// Not allowed, or not possible, for this command or folder.
    Denied,
    NoSuchFolder,
    /// Anything else, which should not happen.
    Fault,
}

/// The kind of status response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    No,
    Bad,
    Bye,
}

/// A NO, BAD or BYE response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub step: Step,
    pub kind: RefusalKind,
    /// Response code, if it is a known one.
    pub code: Option<&'static str>,
    pub class: RefusalClass,
    /// The wait that a throttling server suggests.
    pub retry_after: Option<Duration>,
    text: ServerText,
}

/// A response code, or a part of the text in lower case, and its meaning.
#[derive(Debug)]
struct Quirk {
    code: &'static str,
    text: &'static str,
    class: RefusalClass,
}

const fn code(code: &'static str, class: RefusalClass) -> Quirk {
    Quirk { code, text: "", class }
}

const fn text(text: &'static str, class: RefusalClass) -> Quirk {
    Quirk { code: "", text, class }
}

/// Texts come before codes: where a text is more precise, the code beside it is a general one. A wrong `BadCredentials`
/// stops a mailbox until its owner logs in again, so temporary failures are searched first.
const QUIRKS: &[Quirk] = &[
    // Exchange Online: the token is valid, but the mailbox could not be opened, temporarily or permanently.
    text("authenticated but not connected", RefusalClass::Transient),
    // Exchange Online, in the middle of a session: a renewed token helps.
    text("accesstokenexpired", RefusalClass::Transient),
    text("session invalidated", RefusalClass::Transient),
    // Exchange Online, followed by a number of milliseconds.
    text("suggested backoff time", RefusalClass::Throttled),
    text("request is throttled", RefusalClass::Throttled),
    text("server unavailable", RefusalClass::Transient),
    text("server busy", RefusalClass::Transient),
    // Gmail.
    text("too many simultaneous connections", RefusalClass::Throttled),
    text("exceeded command or bandwidth limits", RefusalClass::Throttled),
    text("exceeded bandwidth limits", RefusalClass::Throttled),
    text("temporary system error", RefusalClass::Transient),
    text("system error (failure)", RefusalClass::Transient),
    text("temporary error (failure)", RefusalClass::Transient),
    // Dovecot and Courier: the limit of connections per user and address.
    text("maximum number of connections", RefusalClass::Throttled),
    text("maximum connection limit", RefusalClass::Throttled),
    text("temporary authentication failure", RefusalClass::Transient),
    text("internal error occurred", RefusalClass::Transient),
    // Yahoo and others.
    text("rate limit", RefusalClass::Throttled),
    text("too many connections", RefusalClass::Throttled),
    text("too many login attempts", RefusalClass::Throttled),
    text("too many attempts", RefusalClass::Throttled),
    text("too many requests", RefusalClass::Throttled),
    text("try again later", RefusalClass::Transient),
    text("temporarily unavailable", RefusalClass::Transient),
    text("in maintenance", RefusalClass::Transient),
    // Codes of RFC 3501, 5530, 9051 and of single servers.
    code("THROTTLED", RefusalClass::Throttled),
    code("LIMIT", RefusalClass::Throttled),
    code("OVERQUOTA", RefusalClass::Throttled),
    code("UNAVAILABLE", RefusalClass::Transient),
    code("INUSE", RefusalClass::Transient),
    code("SERVERBUG", RefusalClass::Transient),
    code("AUTHENTICATIONFAILED", RefusalClass::BadCredentials),
    code("AUTHORIZATIONFAILED", RefusalClass::BadCredentials),
    code("EXPIRED", RefusalClass::BadCredentials),
    code("WEBALERT", RefusalClass::BadCredentials),
    code("NONEXISTENT", RefusalClass::NoSuchFolder),
    code("TRYCREATE", RefusalClass::NoSuchFolder),
    code("NOPERM", RefusalClass::Denied),
    code("CANNOT", RefusalClass::Denied),
    code("PRIVACYREQUIRED", RefusalClass::Denied),
    code("CONTACTADMIN", RefusalClass::Denied),
    code("CORRUPTION", RefusalClass::Denied),
    // Known but not decisive: the texts above or the step decide.
    code("EXPUNGEISSUED", RefusalClass::Fault),
    code("CLIENTBUG", RefusalClass::Fault),
    code("UIDNOTSTICKY", RefusalClass::Fault),
    code("COMPRESSIONACTIVE", RefusalClass::Fault),
    code("UNKNOWN-CTE", RefusalClass::Fault),
    code("BADCHARSET", RefusalClass::Fault),
    code("PARSE", RefusalClass::Fault),
];

impl Refusal {
    /// Classifies a refusal by its response code (in brackets) and the text after it.
    pub fn new(step: Step, kind: RefusalKind, code: &[u8], text: &[u8]) -> Self {
        let words = String::from_utf8_lossy(&text[..text.len().min(1_000)]).to_lowercase();
        let word = code.split(|byte| *byte == b' ').next().unwrap_or_default();
        let by_code =
            QUIRKS.iter().find(|quirk| !quirk.code.is_empty() && quirk.code.as_bytes().eq_ignore_ascii_case(word));
        let by_text = QUIRKS.iter().find(|quirk| !quirk.text.is_empty() && words.contains(quirk.text));
        let class = by_text.or(by_code).map(|quirk| quirk.class).filter(|class| *class != RefusalClass::Fault);
        Self {
            step,
            kind,
            code: by_code.map(|quirk| quirk.code),
            class: class.unwrap_or_else(|| default_class(step, kind)),
            retry_after: suggested_backoff(&words),
            text: ServerText::new(text),
        }
    }

    pub fn code_in_brackets(&self) -> String {
        self.code.map(|code| format!(" [{code}]")).unwrap_or_default()
    }

    /// Returns whether it concerns the whole account, so that other commands would be refused too.
    pub fn is_about_the_account(&self) -> bool {
        matches!(self.class, RefusalClass::BadCredentials | RefusalClass::Throttled | RefusalClass::Transient)
    }

    /// Returns the server's text, for the owner of the mailbox only.
    pub fn text(&self) -> &ServerText {
        &self.text
    }

    pub(super) fn explain(&self, server: &str) -> String {
        let said = match self.text.for_people() {
            "" => String::new(),
            text => format!(" (it says: “{text}”)"),
        };
        match (self.class, self.step) {
            (RefusalClass::BadCredentials, _) => format!("{server} refuses the user name or the password{said}"),
            (RefusalClass::Throttled, _) => format!("{server} asks to wait{said}"),
            (RefusalClass::Transient, _) => format!("{server} cannot serve us at the moment{said}"),
            (RefusalClass::NoSuchFolder, _) => format!("{server} has no such folder{said}"),
            (RefusalClass::Denied, step) => format!("{server} does not allow {}{said}", step.as_str()),
            (RefusalClass::Fault, step) => format!("{server} refused {}{said}", step.as_str()),
        }
    }
}

/// Returns the class of a refusal without a known code or text. Servers older than response codes refuse a password with a
/// bare NO.
fn default_class(step: Step, kind: RefusalKind) -> RefusalClass {
    match (kind, step) {
        (RefusalKind::Bye, _) => RefusalClass::Transient,
        (RefusalKind::No, Step::Login) => RefusalClass::BadCredentials,
        _ => RefusalClass::Fault,
    }
}

/// Reads Exchange's `Suggested Backoff Time: 92415 milliseconds`.
fn suggested_backoff(words: &str) -> Option<Duration> {
    let (_, after) = words.split_once("suggested backoff time:")?;
    let number = lex::number(after.split_whitespace().next()?.as_bytes())?;
    // At most a day.
    Some(Duration::from_millis(number).min(Duration::from_secs(86_400)))
}

#[cfg(test)]
mod tests {
    use domain::ConnectorError;

    use super::super::ImapError;
    use super::*;

    fn refused(step: Step, kind: RefusalKind, line: &str) -> Refusal {
        let (code, text) = match line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            Some((code, text)) => (code, text.trim()),
            None => ("", line),
        };
        Refusal::new(step, kind, code.as_bytes(), text.as_bytes())
    }

    fn engine(step: Step, kind: RefusalKind, line: &str) -> ConnectorError {
        ConnectorError::from(&ImapError::Refused(refused(step, kind, line)))
    }

    #[test]
    fn every_row_of_the_table_is_found() {
        for quirk in QUIRKS {
            let line = match quirk.text {
                "" => format!("[{} and more] Some words.", quirk.code.to_lowercase()),
                text => format!("Sorry. {}: 5 (x).", text.to_uppercase()),
            };
            for step in [Step::Login, Step::Fetch] {
                let refusal = refused(step, RefusalKind::No, &line);
                let expected =
                    if quirk.class == RefusalClass::Fault { default_class(step, RefusalKind::No) } else { quirk.class };
                assert_eq!(refusal.class, expected, "{line}");
                assert_eq!(refusal.code.unwrap_or(""), quirk.code, "{line}");
            }
        }
    }

    #[test]
    fn texts_of_real_servers_are_classified() {
        use RefusalClass::{BadCredentials, Denied, Fault, NoSuchFolder, Throttled, Transient};
        for (step, kind, line, class) in [
            (Step::Login, RefusalKind::No, "[AUTHENTICATIONFAILED] Invalid credentials (Failure)", BadCredentials),
            (Step::Login, RefusalKind::No, "LOGIN failed.", BadCredentials),
            (Step::Login, RefusalKind::No, "AUTHENTICATE failed.", BadCredentials),
            (Step::Login, RefusalKind::No, "[ALERT] Application-specific password required (Failure)", BadCredentials),
            (Step::Login, RefusalKind::No, "[ALERT] Too many simultaneous connections. (Failure)", Throttled),
            (
                Step::Login,
                RefusalKind::No,
                "[UNAVAILABLE] Temporary authentication failure. [host:2026-01-01]",
                Transient,
            ),
            (
                Step::Login,
                RefusalKind::No,
                "[AUTHENTICATIONFAILED] Too many login attempts, try again later",
                Throttled,
            ),
            (Step::Login, RefusalKind::No, "[LIMIT] LOGIN Rate limit hit.", Throttled),
            (Step::Login, RefusalKind::No, "[SERVERBUG] LOGIN Server error - Please try again later", Transient),
            (Step::Login, RefusalKind::No, "[PRIVACYREQUIRED] Plaintext authentication disallowed", Denied),
            (Step::Login, RefusalKind::Bad, "User is authenticated but not connected.", Transient),
            (Step::Login, RefusalKind::Bad, "Command Argument Error. 12", Fault),
            (Step::Fetch, RefusalKind::Bye, "Session invalidated - AccessTokenExpired", Transient),
            (
                Step::Fetch,
                RefusalKind::No,
                "[OVERQUOTA] Account exceeded command or bandwidth limits. (Failure)",
                Throttled,
            ),
            (Step::Fetch, RefusalKind::No, "Some messages are not there", Fault),
            (Step::Examine, RefusalKind::No, "[NONEXISTENT] Unknown Mailbox: x (Failure)", NoSuchFolder),
            (Step::Greeting, RefusalKind::Bye, "[ALERT] Maximum connection limit reached from ::1", Throttled),
            (Step::Idle, RefusalKind::Bye, "Disconnected for inactivity.", Transient),
        ] {
            assert_eq!(refused(step, kind, line).class, class, "{line}");
        }
    }

    #[test]
    fn only_a_refused_login_is_unauthorized() {
        assert_eq!(
            engine(Step::Login, RefusalKind::No, "[AUTHENTICATIONFAILED] no, ann@example.org"),
            ConnectorError::Unauthorized("the server refused the login [AUTHENTICATIONFAILED]".to_owned())
        );
        assert!(matches!(engine(Step::Login, RefusalKind::No, "[UNAVAILABLE] x"), ConnectorError::Unavailable(_)));
        assert!(matches!(engine(Step::Fetch, RefusalKind::Bad, "what"), ConnectorError::Protocol(_)));
        let wait = Some(Duration::from_millis(92_415));
        let line = "Request is throttled. Suggested Backoff Time: 92415 milliseconds";
        assert_eq!(engine(Step::Fetch, RefusalKind::Bad, line), ConnectorError::Throttled { retry_after: wait });
    }
}
