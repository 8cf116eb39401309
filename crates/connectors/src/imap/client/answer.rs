//! What kind of answer an answer is.

use super::error::Step;
use super::lex::{Lexer, number, without_line_end};
use super::refusal::{Kind, Refusal};

#[derive(Debug, Clone, Copy)]
pub enum Answer<'a> {
    /// The server waits for more of a command.
    Continue,
    /// The end of the command with this tag.
    Done(u32, Status<'a>),
    /// `* OK`, or one of the others.
    Status(Status<'a>),
    /// `* 12 EXISTS`: the number, the word and what follows.
    Numbered(u32, &'a [u8], Lexer<'a>),
    /// `* SEARCH 1 2`: the word and what follows.
    Data(&'a [u8], Lexer<'a>),
}

#[derive(Debug, Clone, Copy)]
pub struct Status<'a> {
    pub word: Word,
    /// What is in the brackets, if there are any.
    pub code: &'a [u8],
    pub text: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Ok,
    PreAuth,
    Refused(Kind),
}

impl<'a> Answer<'a> {
    /// Nothing when it is none. A line without any sense behind its star is data that nobody asked for.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let bytes = without_line_end(bytes);
        if bytes.is_empty() {
            return Some(Self::Data(b"", Lexer::new(b"")));
        }
        if bytes.starts_with(b"+") {
            return Some(Self::Continue);
        }
        let mut lexer = Lexer::new(bytes);
        let tag = lexer.atom()?;
        lexer.spaces();
        if tag == b"*" {
            return Some(Self::untagged(lexer));
        }
        Some(Self::Done(number(tag.strip_prefix(b"A")?)?, Status::parse(lexer)?))
    }

    fn untagged(mut lexer: Lexer<'a>) -> Self {
        if let Some(status) = Status::parse(lexer) {
            return Self::Status(status);
        }
        let word = lexer.atom().unwrap_or_default();
        lexer.spaces();
        let Some(number) = number(word) else { return Self::Data(word, lexer) };
        let word = lexer.atom().unwrap_or_default();
        lexer.spaces();
        Self::Numbered(number, word, lexer)
    }

    /// The items of a FETCH, if it is one.
    pub fn fetch(&self) -> Option<Lexer<'a>> {
        match self {
            Self::Numbered(_, word, rest) if word.eq_ignore_ascii_case(b"FETCH") => Some(*rest),
            _ => None,
        }
    }

    /// What follows this word, if it is data of that kind.
    pub fn data(&self, wanted: &str) -> Option<Lexer<'a>> {
        match self {
            Self::Data(word, rest) if word.eq_ignore_ascii_case(wanted.as_bytes()) => Some(*rest),
            _ => None,
        }
    }

    /// What follows this word in the brackets of an OK.
    pub fn code(&self, wanted: &str) -> Option<Lexer<'a>> {
        let (Self::Status(status) | Self::Done(_, status)) = self else { return None };
        let mut lexer = Lexer::new(status.code);
        let word = lexer.atom()?;
        lexer.spaces();
        (status.word == Word::Ok || status.word == Word::PreAuth)
            .then_some(lexer)
            .filter(|_| word.eq_ignore_ascii_case(wanted.as_bytes()))
    }
}

impl<'a> Status<'a> {
    fn parse(mut lexer: Lexer<'a>) -> Option<Self> {
        let words = [
            ("OK", Word::Ok),
            ("NO", Word::Refused(Kind::No)),
            ("BAD", Word::Refused(Kind::Bad)),
            ("BYE", Word::Refused(Kind::Bye)),
            ("PREAUTH", Word::PreAuth),
        ];
        let said = lexer.atom()?;
        let (_, word) = words.into_iter().find(|(word, _)| said.eq_ignore_ascii_case(word.as_bytes()))?;
        lexer.spaces();
        let rest = lexer.rest();
        let (code, text) = match rest.strip_prefix(b"[").and_then(|rest| Some((rest, memchr::memchr(b']', rest)?))) {
            Some((rest, end)) => (&rest[..end], &rest[end + 1..]),
            None => (&b""[..], rest),
        };
        Some(Self { word, code, text })
    }

    /// What it refuses, if it does.
    pub fn refusal(&self, step: Step) -> Option<Refusal> {
        match self.word {
            Word::Refused(kind) => Some(Refusal::new(step, kind, self.code, self.text)),
            Word::Ok | Word::PreAuth => None,
        }
    }

    pub fn is_bye(&self) -> bool {
        self.word == Word::Refused(Kind::Bye)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        assert!(matches!(Answer::parse(b"+ go on\r\n"), Some(Answer::Continue)));
        assert!(matches!(Answer::parse(b"+\n"), Some(Answer::Continue)));
        assert!(
            matches!(Answer::parse(b"A7 OK [READ-ONLY] done\r\n"), Some(Answer::Done(7, s)) if s.code == b"READ-ONLY")
        );
        assert!(
            matches!(Answer::parse(b"* bye [ALERT\r\n"), Some(Answer::Status(s)) if s.is_bye() && s.code.is_empty())
        );
        assert!(matches!(Answer::parse(b"* 3 exists\r\n"), Some(Answer::Numbered(3, b"exists", _))));
        assert!(Answer::parse(b"* 3 Fetch (UID 1)\r\n").unwrap().fetch().is_some());
        assert!(Answer::parse(b"* SEARCH 1\r\n").unwrap().data("search").is_some());
        assert_eq!(Answer::parse(b"* OK [UIDNEXT 5] x\r\n").unwrap().code("UIDNEXT").unwrap().number(), Some(5));
        assert!(Answer::parse(b"* NO [UIDNEXT 5] x\r\n").unwrap().code("UIDNEXT").is_none());
        for odd in [&b"* \r\n"[..], b"\r\n", b"* \0\r\n", b"* 99999999999 EXISTS\r\n"] {
            assert!(matches!(Answer::parse(odd), Some(Answer::Data(..))));
        }
        for wrong in [&b"B1 OK\r\n"[..], b"A OK\r\n", b"A1 MAYBE\r\n", b"HTTP/1.1 200 OK\r\n", b"(\r\n"] {
            assert!(Answer::parse(wrong).is_none());
        }
    }
}
