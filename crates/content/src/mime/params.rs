//! `value; name=value` headers (Content-Type, Content-Disposition) with RFC 2231 and all that is written instead of it.

use super::charset;
use super::defects::Defects;
use super::text;
use super::transfer::hex;
use super::words;

/// A value and its parameters.
#[derive(Debug, Default)]
pub struct HeaderParams {
    /// Lower-cased, without white space and comments.
    pub value: String,
    params: Vec<HeaderParam>,
}

#[derive(Debug)]
struct HeaderParam {
    /// Lower-cased, without the marks of RFC 2231.
    name: String,
    /// `name*2=`: its place among the pieces of one value.
    piece: Option<u32>,
    /// `name*=` or `name*2*=`: percent-encoded.
    is_encoded: bool,
    value: String,
}

impl HeaderParams {
    pub fn parse(line: &str) -> Self {
        let end = line.find(';').unwrap_or(line.len());
        let (value, mut rest) = line.split_at(end);
        let mut value = value.split('(').next().unwrap_or_default().trim();
        let mut params = Vec::new();
        let mut has_quotes = true;
        // A forgotten semicolon: `text/plain charset=utf-8`.
        if let Some((kind, param)) = value.split_once(char::is_whitespace).filter(|(kind, _)| kind.contains('/'))
            && param.contains('=')
        {
            params.extend(one(param.trim_start(), &mut has_quotes).0);
            value = kind;
        }
        let value = value.chars().filter(|c| !c.is_whitespace() && *c != '"').collect::<String>().to_ascii_lowercase();
        while let Some(tail) = rest.strip_prefix(';') {
            let (param, after) = one(tail.trim_start(), &mut has_quotes);
            params.extend(param);
            rest = after;
        }
        Self { value, params }
    }

    /// Returns the half of a media type before its slash.
    pub fn kind(&self) -> &str {
        self.value.split('/').next().unwrap_or_default()
    }

    /// Returns a parameter for machines, such as a boundary.
    pub fn find(&self, name: &str) -> Option<String> {
        self.text(name, &mut Defects::default())
    }

    /// Returns a parameter for people, such as a file name, with every encoding of non-ASCII characters decoded.
    pub fn text(&self, name: &str, defects: &mut Defects) -> Option<String> {
        let text = self.extended(name, defects).or_else(|| {
            let plain = self.params.iter().find(|p| p.name == name && p.piece.is_none() && !p.is_encoded)?;
            Some(plain.value.clone())
        })?;
        let text = if text.contains("=?") { words::decode(&text, defects) } else { text };
        Some(text::single_line(text, defects)).filter(|text| !text.is_empty())
    }

    /// Joins the pieces of a parameter (RFC 2231) in order; the first one names the charset of all.
    fn extended(&self, name: &str, defects: &mut Defects) -> Option<String> {
        let mut pieces: Vec<&HeaderParam> =
            self.params.iter().filter(|p| p.name == name && (p.is_encoded || p.piece.is_some())).collect();
        pieces.sort_by_key(|piece| piece.piece.unwrap_or(0));
        // Some count from one; what is beyond a gap belongs to something that got lost.
        let first = pieces.first()?.piece.unwrap_or(0);
        let (mut label, mut bytes) = (None, Vec::new());
        for (place, piece) in (first..).zip(pieces) {
            if piece.piece.unwrap_or(first) != place {
                break;
            }
            let mut value = piece.value.as_str();
            if place == first
                && piece.is_encoded
                && let Some((charset, tail)) = value.split_once('\'')
                && let Some((_language, tail)) = tail.split_once('\'')
            {
                label = Some(charset.to_owned());
                value = tail;
            }
            if piece.is_encoded {
                percent_decode(value, &mut bytes);
            } else {
                bytes.extend_from_slice(value.as_bytes());
            }
        }
        Some(charset::decode(&bytes, label.as_deref().filter(|label| !label.is_empty()), defects))
    }
}

/// Parses one parameter; returns it and what follows it. `has_quotes` becomes false once no closing quote was found.
fn one<'a>(text: &'a str, has_quotes: &mut bool) -> (Option<HeaderParam>, &'a str) {
    let end = text.find([';', '=']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let Some(rest) = rest.strip_prefix('=') else {
        return (None, rest);
    };
    let rest = rest.trim_start();
    let quoted = if *has_quotes { rest.strip_prefix('"') } else { None };
    let (value, rest) = match quoted.map(unquote) {
        Some(Some((value, tail))) => (value, tail.get(tail.find(';').unwrap_or(tail.len())..).unwrap_or_default()),
        unterminated => {
            *has_quotes &= unterminated.is_none();
            let (value, tail) = rest.split_at(rest.find(';').unwrap_or(rest.len()));
            (value.trim().trim_matches('"').to_owned(), tail)
        }
    };
    (HeaderParam::named(name.trim(), value), rest)
}

/// Returns a quoted string and what follows its end. A backslash before anything but a quote or itself is part of a
/// path.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, text.get(at + 1..).unwrap_or_default())),
            '\\' => match chars.next_if(|(_, next)| matches!(next, '"' | '\\')) {
                Some((_, next)) => out.push(next),
                None => out.push('\\'),
            },
            _ => out.push(c),
        }
    }
    None
}

impl HeaderParam {
    fn named(name: &str, value: String) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let mut marks = name.split('*');
        let plain = marks.next().filter(|plain| !plain.is_empty())?.trim().to_owned();
        let (mut piece, mut is_encoded) = (None, false);
        for mark in marks {
            match mark.trim().parse() {
                Ok(number) => piece = Some(number),
                Err(_) => is_encoded = true,
            }
        }
        Some(Self { name: plain, piece, is_encoded, value })
    }
}

fn percent_decode(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        match tail {
            [high, low, after @ ..] if byte == b'%' && hex(*high).is_some() && hex(*low).is_some() => {
                out.push(hex(*high).unwrap_or_default() << 4 | hex(*low).unwrap_or_default());
                rest = after;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filename(line: &str) -> Option<String> {
        HeaderParams::parse(line).text("filename", &mut Defects::default())
    }

    #[test]
    fn plain_and_quoted_values() {
        let params = HeaderParams::parse("Text/Plain (a comment); charset=\"utf-8\"; Format = flowed ;; x");

        assert_eq!(params.value, "text/plain");
        assert_eq!(params.find("charset").as_deref(), Some("utf-8"));
        assert_eq!(params.find("format").as_deref(), Some("flowed"));
        assert_eq!(params.find("x"), None);
        assert_eq!(HeaderParams::parse("text/plain charset=koi8-r").find("charset").as_deref(), Some("koi8-r"));
        assert_eq!(HeaderParams::parse("text / html").value, "text/html");
    }

    #[test]
    fn file_names_in_every_disguise() {
        assert_eq!(filename("attachment; filename*=UTF-8''na%C3%AFve.txt").as_deref(), Some("naïve.txt"));
        assert_eq!(
            filename("a; filename*0*=utf-8''%C3; filename*1*=%A9; filename*2=\".txt\"").as_deref(),
            Some("é.txt")
        );
        assert_eq!(filename("a; filename*1=b; filename*0=a; filename*3=d").as_deref(), Some("ab"));
        assert_eq!(filename("a; filename=\"=?utf-8?B?w6k=?=.txt\"").as_deref(), Some("é.txt"));
        assert_eq!(filename("a; filename=no quotes here.txt; x=y").as_deref(), Some("no quotes here.txt"));
        assert_eq!(filename("a; filename=plain.txt; filename*=utf-8''e%CC%81.txt").as_deref(), Some("e\u{301}.txt"));
        assert_eq!(filename("a; filename*=na%C3%AFve.txt").as_deref(), Some("naïve.txt"));
        assert_eq!(filename("a; filename*=iso-8859-1'en'caf%E9").as_deref(), Some("café"));
    }

    #[test]
    fn file_names_with_odd_quotes() {
        assert_eq!(filename(r#"a; filename="C:\temp\a \"b\".txt""#).as_deref(), Some(r#"C:\temp\a "b".txt"#));
        assert_eq!(filename("a; filename=\"semi;colon.txt\"").as_deref(), Some("semi;colon.txt"));
        assert_eq!(filename("a; filename=\"open.txt; size=3").as_deref(), Some("open.txt"));
        assert_eq!(filename("a; filename=\"\""), None);
        assert_eq!(filename("a; filename=\"../../etc/passwd\u{1}\"").as_deref(), Some("../../etc/passwd"));
    }

    #[test]
    fn endless_parameters_take_linear_time() {
        HeaderParams::parse(&"x; a=\"".repeat(50_000));
        filename(&"a; filename*0=x".repeat(20_000));
    }
}
