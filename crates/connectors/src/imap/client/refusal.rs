//! What a server means by NO, BAD and BYE. What each is known to say is data, in the order in which it is looked at.

use std::time::Duration;

use super::error::{ServerText, Step};
use super::lex;

/// What to do about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nobody may log in with these until their owner has done something.
    BadCredentials,
    /// Too many calls, connections or bytes: wait.
    Throttled,
    /// It passes.
    Transient,
    /// Not allowed, or not possible, for this command or folder.
    Denied,
    NoSuchFolder,
    /// Something that should not happen.
    Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    No,
    Bad,
    Bye,
}

/// An answer of NO, BAD or BYE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub step: Step,
    pub kind: Kind,
    /// Of those we know.
    pub code: Option<&'static str>,
    pub class: Class,
    /// What a throttling server suggests.
    pub retry_after: Option<Duration>,
    text: ServerText,
}

/// A code or some words (in lower case), and what they mean.
#[derive(Debug)]
struct Quirk {
    code: &'static str,
    text: &'static str,
    class: Class,
}

const fn code(code: &'static str, class: Class) -> Quirk {
    Quirk { code, text: "", class }
}

const fn text(text: &'static str, class: Class) -> Quirk {
    Quirk { code: "", text, class }
}

/// Words come before codes: where a server says more with words, the code beside them is a general one. A wrong
/// `BadCredentials` stops a mailbox until somebody logs in again, so whatever may pass is looked for first.
const QUIRKS: &[Quirk] = &[
    // Exchange Online: the token is right; the mailbox behind it could not be opened, this time or for good.
    text("authenticated but not connected", Class::Transient),
    // Exchange Online, in the middle of a session: a fresh token mends it.
    text("accesstokenexpired", Class::Transient),
    text("session invalidated", Class::Transient),
    // Exchange Online, with a number of milliseconds behind it.
    text("suggested backoff time", Class::Throttled),
    text("request is throttled", Class::Throttled),
    text("server unavailable", Class::Transient),
    text("server busy", Class::Transient),
    // Gmail.
    text("too many simultaneous connections", Class::Throttled),
    text("exceeded command or bandwidth limits", Class::Throttled),
    text("exceeded bandwidth limits", Class::Throttled),
    text("temporary system error", Class::Transient),
    text("system error (failure)", Class::Transient),
    text("temporary error (failure)", Class::Transient),
    // Dovecot and Courier, with the limit of connections per user and address.
    text("maximum number of connections", Class::Throttled),
    text("maximum connection limit", Class::Throttled),
    text("temporary authentication failure", Class::Transient),
    text("internal error occurred", Class::Transient),
    // Yahoo and others.
    text("rate limit", Class::Throttled),
    text("too many connections", Class::Throttled),
    text("too many login attempts", Class::Throttled),
    text("too many attempts", Class::Throttled),
    text("too many requests", Class::Throttled),
    text("try again later", Class::Transient),
    text("temporarily unavailable", Class::Transient),
    text("in maintenance", Class::Transient),
    // Codes of RFC 3501, 5530, 9051 and of single servers.
    code("THROTTLED", Class::Throttled),
    code("LIMIT", Class::Throttled),
    code("OVERQUOTA", Class::Throttled),
    code("UNAVAILABLE", Class::Transient),
    code("INUSE", Class::Transient),
    code("SERVERBUG", Class::Transient),
    code("AUTHENTICATIONFAILED", Class::BadCredentials),
    code("AUTHORIZATIONFAILED", Class::BadCredentials),
    code("EXPIRED", Class::BadCredentials),
    code("WEBALERT", Class::BadCredentials),
    code("NONEXISTENT", Class::NoSuchFolder),
    code("TRYCREATE", Class::NoSuchFolder),
    code("NOPERM", Class::Denied),
    code("CANNOT", Class::Denied),
    code("PRIVACYREQUIRED", Class::Denied),
    code("CONTACTADMIN", Class::Denied),
    code("CORRUPTION", Class::Denied),
    // Known, and not decisive: the words above or the step decide.
    code("EXPUNGEISSUED", Class::Fault),
    code("CLIENTBUG", Class::Fault),
    code("UIDNOTSTICKY", Class::Fault),
    code("COMPRESSIONACTIVE", Class::Fault),
    code("UNKNOWN-CTE", Class::Fault),
    code("BADCHARSET", Class::Fault),
    code("PARSE", Class::Fault),
];

impl Refusal {
    /// `code` is what stood in brackets, `text` what followed.
    pub fn new(step: Step, kind: Kind, code: &[u8], text: &[u8]) -> Self {
        let words = String::from_utf8_lossy(&text[..text.len().min(1_000)]).to_lowercase();
        let word = code.split(|byte| *byte == b' ').next().unwrap_or_default();
        let by_code =
            QUIRKS.iter().find(|quirk| !quirk.code.is_empty() && quirk.code.as_bytes().eq_ignore_ascii_case(word));
        let by_text = QUIRKS.iter().find(|quirk| !quirk.text.is_empty() && words.contains(quirk.text));
        let class = by_text.or(by_code).map(|quirk| quirk.class).filter(|class| *class != Class::Fault);
        Self {
            step,
            kind,
            code: by_code.map(|quirk| quirk.code),
            class: class.unwrap_or_else(|| usual(step, kind)),
            retry_after: backoff(&words),
            text: ServerText::new(text),
        }
    }

    pub fn code_in_brackets(&self) -> String {
        self.code.map(|code| format!(" [{code}]")).unwrap_or_default()
    }

    /// Whether nothing else will be granted either, for now.
    pub fn is_about_the_account(&self) -> bool {
        matches!(self.class, Class::BadCredentials | Class::Throttled | Class::Transient)
    }

    /// What the server said, for the owner of the mailbox only.
    pub fn text(&self) -> &ServerText {
        &self.text
    }

    pub(super) fn explain(&self, server: &str) -> String {
        let said = match self.text.for_people() {
            "" => String::new(),
            text => format!(" (it says: “{text}”)"),
        };
        match (self.class, self.step) {
            (Class::BadCredentials, _) => format!("{server} refuses the user name or the password{said}"),
            (Class::Throttled, _) => format!("{server} asks to wait{said}"),
            (Class::Transient, _) => format!("{server} cannot serve us at the moment{said}"),
            (Class::NoSuchFolder, _) => format!("{server} has no such folder{said}"),
            (Class::Denied, step) => format!("{server} does not allow {}{said}", step.as_str()),
            (Class::Fault, step) => format!("{server} refused {}{said}", step.as_str()),
        }
    }
}

/// Without a code or words that we know. Servers older than the codes refuse a password with a bare NO.
fn usual(step: Step, kind: Kind) -> Class {
    match (kind, step) {
        (Kind::Bye, _) => Class::Transient,
        (Kind::No, Step::Login) => Class::BadCredentials,
        _ => Class::Fault,
    }
}

/// Exchange: `Suggested Backoff Time: 92415 milliseconds`.
fn backoff(words: &str) -> Option<Duration> {
    let (_, after) = words.split_once("suggested backoff time:")?;
    let number = lex::number(after.split_whitespace().next()?.as_bytes())?;
    // Never longer than a day, whatever is said.
    Some(Duration::from_millis(number).min(Duration::from_secs(86_400)))
}

#[cfg(test)]
mod tests {
    use domain::ConnectorError;

    use super::super::ImapError;
    use super::*;

    fn refused(step: Step, kind: Kind, line: &str) -> Refusal {
        let (code, text) = match line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            Some((code, text)) => (code, text.trim()),
            None => ("", line),
        };
        Refusal::new(step, kind, code.as_bytes(), text.as_bytes())
    }

    #[test]
    fn every_row_of_the_table_is_found_by_what_it_says() {
        for quirk in QUIRKS {
            let line = match quirk.text {
                "" => format!("[{} and more] Some words.", quirk.code.to_lowercase()),
                text => format!("Sorry. {}: 5 (x).", text.to_uppercase()),
            };
            for step in [Step::Login, Step::Fetch] {
                let refusal = refused(step, Kind::No, &line);
                let expected = if quirk.class == Class::Fault { usual(step, Kind::No) } else { quirk.class };
                assert_eq!(refusal.class, expected, "{line}");
                assert_eq!(refusal.code.unwrap_or(""), quirk.code, "{line}");
            }
        }
    }

    #[test]
    fn servers_own_words_have_the_class_that_they_mean() {
        use Class::{BadCredentials, Denied, Fault, NoSuchFolder, Throttled, Transient};
        for (step, kind, line, class) in [
            (Step::Login, Kind::No, "[AUTHENTICATIONFAILED] Invalid credentials (Failure)", BadCredentials),
            (Step::Login, Kind::No, "LOGIN failed.", BadCredentials),
            (Step::Login, Kind::No, "AUTHENTICATE failed.", BadCredentials),
            (Step::Login, Kind::No, "[ALERT] Application-specific password required (Failure)", BadCredentials),
            (Step::Login, Kind::No, "[ALERT] Too many simultaneous connections. (Failure)", Throttled),
            (Step::Login, Kind::No, "[UNAVAILABLE] Temporary authentication failure. [host:2026-01-01]", Transient),
            (Step::Login, Kind::No, "[AUTHENTICATIONFAILED] Too many login attempts, try again later", Throttled),
            (Step::Login, Kind::No, "[LIMIT] LOGIN Rate limit hit.", Throttled),
            (Step::Login, Kind::No, "[SERVERBUG] LOGIN Server error - Please try again later", Transient),
            (Step::Login, Kind::No, "[PRIVACYREQUIRED] Plaintext authentication disallowed", Denied),
            (Step::Login, Kind::Bad, "User is authenticated but not connected.", Transient),
            (Step::Login, Kind::Bad, "Command Argument Error. 12", Fault),
            (Step::Fetch, Kind::Bye, "Session invalidated - AccessTokenExpired", Transient),
            (Step::Fetch, Kind::No, "[OVERQUOTA] Account exceeded command or bandwidth limits. (Failure)", Throttled),
            (Step::Fetch, Kind::No, "Some messages are not there", Fault),
            (Step::Examine, Kind::No, "[NONEXISTENT] Unknown Mailbox: x (Failure)", NoSuchFolder),
            (Step::Greeting, Kind::Bye, "[ALERT] Maximum connection limit reached from ::1", Throttled),
            (Step::Idle, Kind::Bye, "Disconnected for inactivity.", Transient),
        ] {
            assert_eq!(refused(step, kind, line).class, class, "{line}");
        }
    }

    #[test]
    fn only_a_refused_login_is_unauthorized() {
        let engine = |step, kind, line| ConnectorError::from(&ImapError::Refused(refused(step, kind, line)));

        assert_eq!(
            engine(Step::Login, Kind::No, "[AUTHENTICATIONFAILED] no, ann@example.org"),
            ConnectorError::Unauthorized("the server refused the login [AUTHENTICATIONFAILED]".to_owned())
        );
        assert!(matches!(engine(Step::Login, Kind::No, "[UNAVAILABLE] x"), ConnectorError::Unavailable(_)));
        assert!(matches!(engine(Step::Fetch, Kind::Bad, "what"), ConnectorError::Protocol(_)));
        let wait = Some(Duration::from_millis(92_415));
        let line = "Request is throttled. Suggested Backoff Time: 92415 milliseconds";
        assert_eq!(engine(Step::Fetch, Kind::Bad, line), ConnectorError::Throttled { retry_after: wait });
    }
}
