//! Parses server responses into their kinds (RFC 3501, section 7).

use super::error::Step;
use super::lex::{Lexer, number, without_line_end};
use super::refusal::{Refusal, RefusalKind};

/// One response of the server.
#[derive(Debug, Clone, Copy)]
pub enum ServerResponse<'a> {
    /// `+`: a command continuation request.
    Continuation,
    /// The completion of the command with this tag.
    Tagged(u32, StatusResponse<'a>),
    /// An untagged status response: `* OK`, `* BYE` and the others.
    Status(StatusResponse<'a>),
    /// `* 12 EXISTS`: the number, the name and the rest.
    Numbered(u32, &'a [u8], Lexer<'a>),
    /// `* SEARCH 1 2`: the name and the rest.
    Data(&'a [u8], Lexer<'a>),
}

/// An OK, NO, BAD, BYE or PREAUTH.
#[derive(Debug, Clone, Copy)]
pub struct StatusResponse<'a> {
    pub condition: StatusCondition,
    /// Response code: the text in brackets, or empty.
    pub code: &'a [u8],
    pub text: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusCondition {
    Ok,
    PreAuth,
    Refused(RefusalKind),
}

impl<'a> ServerResponse<'a> {
    /// Parses a response. Returns `None` if it is none; an untagged line that is not understood is unsolicited data.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let bytes = without_line_end(bytes);
        if bytes.is_empty() {
            return Some(Self::Data(b"", Lexer::new(b"")));
        }
        if bytes.starts_with(b"+") {
            return Some(Self::Continuation);
        }
        let mut lexer = Lexer::new(bytes);
        let tag = lexer.atom()?;
        lexer.spaces();
        if tag == b"*" {
            return Some(Self::untagged(lexer));
        }
        Some(Self::Tagged(number(tag.strip_prefix(b"A")?)?, StatusResponse::parse(lexer)?))
    }

    fn untagged(mut lexer: Lexer<'a>) -> Self {
        if let Some(status) = StatusResponse::parse(lexer) {
            return Self::Status(status);
        }
        let condition = lexer.atom().unwrap_or_default();
        lexer.spaces();
        let Some(number) = number(condition) else { return Self::Data(condition, lexer) };
        let condition = lexer.atom().unwrap_or_default();
        lexer.spaces();
        Self::Numbered(number, condition, lexer)
    }

    /// Returns the items of a FETCH response.
    pub fn fetch(&self) -> Option<Lexer<'a>> {
        match self {
            Self::Numbered(_, condition, rest) if condition.eq_ignore_ascii_case(b"FETCH") => Some(*rest),
            _ => None,
        }
    }

    /// Returns the rest of a data response of this name.
    pub fn data(&self, name: &str) -> Option<Lexer<'a>> {
        match self {
            Self::Data(condition, rest) if condition.eq_ignore_ascii_case(name.as_bytes()) => Some(*rest),
            _ => None,
        }
    }

    /// Returns the arguments of this response code of an OK or PREAUTH.
    pub fn code(&self, name: &str) -> Option<Lexer<'a>> {
        let (Self::Status(status) | Self::Tagged(_, status)) = self else { return None };
        let mut lexer = Lexer::new(status.code);
        let condition = lexer.atom()?;
        lexer.spaces();
        (status.condition == StatusCondition::Ok || status.condition == StatusCondition::PreAuth)
            .then_some(lexer)
            .filter(|_| condition.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl<'a> StatusResponse<'a> {
    fn parse(mut lexer: Lexer<'a>) -> Option<Self> {
        let words = [
            ("OK", StatusCondition::Ok),
            ("NO", StatusCondition::Refused(RefusalKind::No)),
            ("BAD", StatusCondition::Refused(RefusalKind::Bad)),
            ("BYE", StatusCondition::Refused(RefusalKind::Bye)),
            ("PREAUTH", StatusCondition::PreAuth),
        ];
        let token = lexer.atom()?;
        let (_, condition) =
            words.into_iter().find(|(condition, _)| token.eq_ignore_ascii_case(condition.as_bytes()))?;
        lexer.spaces();
        let rest = lexer.rest();
        let (code, text) = match rest.strip_prefix(b"[").and_then(|rest| Some((rest, memchr::memchr(b']', rest)?))) {
            Some((rest, end)) => (&rest[..end], &rest[end + 1..]),
            None => (&b""[..], rest),
        };
        Some(Self { condition, code, text })
    }

    /// Returns the refusal if it is a NO, BAD or BYE.
    pub fn refusal(&self, step: Step) -> Option<Refusal> {
        match self.condition {
            StatusCondition::Refused(kind) => Some(Refusal::new(step, kind, self.code, self.text)),
            StatusCondition::Ok | StatusCondition::PreAuth => None,
        }
    }

    pub fn is_bye(&self) -> bool {
        self.condition == StatusCondition::Refused(RefusalKind::Bye)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_response_is_parsed() {
        assert!(matches!(ServerResponse::parse(b"+ go on\r\n"), Some(ServerResponse::Continuation)));
        assert!(matches!(ServerResponse::parse(b"+\n"), Some(ServerResponse::Continuation)));
        assert!(
            matches!(ServerResponse::parse(b"A7 OK [READ-ONLY] done\r\n"), Some(ServerResponse::Tagged(7, s)) if s.code == b"READ-ONLY")
        );
        assert!(
            matches!(ServerResponse::parse(b"* bye [ALERT\r\n"), Some(ServerResponse::Status(s)) if s.is_bye() && s.code.is_empty())
        );
        assert!(matches!(ServerResponse::parse(b"* 3 exists\r\n"), Some(ServerResponse::Numbered(3, b"exists", _))));
        assert!(ServerResponse::parse(b"* 3 Fetch (UID 1)\r\n").unwrap().fetch().is_some());
        assert!(ServerResponse::parse(b"* SEARCH 1\r\n").unwrap().data("search").is_some());
        assert_eq!(
            ServerResponse::parse(b"* OK [UIDNEXT 5] x\r\n").unwrap().code("UIDNEXT").unwrap().number(),
            Some(5)
        );
        assert!(ServerResponse::parse(b"* NO [UIDNEXT 5] x\r\n").unwrap().code("UIDNEXT").is_none());
        for odd in [&b"* \r\n"[..], b"\r\n", b"* \0\r\n", b"* 99999999999 EXISTS\r\n"] {
            assert!(matches!(ServerResponse::parse(odd), Some(ServerResponse::Data(..))));
        }
        for wrong in [&b"B1 OK\r\n"[..], b"A OK\r\n", b"A1 MAYBE\r\n", b"HTTP/1.1 200 OK\r\n", b"(\r\n"] {
            assert!(ServerResponse::parse(wrong).is_none());
        }
    }
}
