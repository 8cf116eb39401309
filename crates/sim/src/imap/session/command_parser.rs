//! Parses a command into atoms, strings and lists.

/// One element of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// An atom with its brackets, as in `BODY.PEEK[HEADER]<0.100>`.
    Atom(String),
    /// A quoted string or a literal.
    Text(Vec<u8>),
    List(Vec<Word>),
}

impl Word {
    /// Returns an atom or string as text.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Atom(atom) => Some(atom.clone()),
            Self::Text(bytes) => String::from_utf8(bytes.clone()).ok(),
            Self::List(_) => None,
        }
    }

    /// Returns an atom in capital letters; anything else is empty.
    pub fn keyword(&self) -> String {
        match self {
            Self::Atom(atom) => atom.to_uppercase(),
            _ => String::new(),
        }
    }

    pub fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(words) => Some(words),
            _ => None,
        }
    }
}

/// A piece of a command as received: a line, or a literal between two lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Line(Vec<u8>),
    Literal(Vec<u8>),
}

/// Parses a command. Returns `None` on a syntax error.
pub fn read(pieces: &[Piece]) -> Option<Vec<Word>> {
    let mut open: Vec<Vec<Word>> = vec![Vec::new()];
    for piece in pieces {
        match piece {
            Piece::Literal(bytes) => open.last_mut()?.push(Word::Text(bytes.clone())),
            Piece::Line(line) => read_line(line, &mut open)?,
        }
    }
    let words = open.pop()?;
    open.is_empty().then_some(words)
}

fn read_line(line: &[u8], open: &mut Vec<Vec<Word>>) -> Option<()> {
    let mut rest = line;
    while let Some((&first, after)) = rest.split_first() {
        match first {
            b' ' => rest = after,
            b'(' => {
                open.push(Vec::new());
                rest = after;
            }
            b')' => {
                let list = open.pop()?;
                open.last_mut()?.push(Word::List(list));
                rest = after;
            }
            b'"' => {
                let (text, left) = quoted(after)?;
                open.last_mut()?.push(Word::Text(text));
                rest = left;
            }
            // Announces the length of the literal that follows.
            b'{' => return rest.ends_with(b"}").then_some(()),
            _ => {
                let (atom, left) = atom(rest)?;
                open.last_mut()?.push(Word::Atom(atom));
                rest = left;
            }
        }
    }
    Some(())
}

fn quoted(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut text = Vec::new();
    loop {
        let (&first, after) = rest.split_first()?;
        match first {
            b'"' => return Some((text, after)),
            b'\\' => {
                let (&escaped, after) = after.split_first()?;
                text.push(escaped);
                rest = after;
            }
            other => {
                text.push(other);
                rest = after;
            }
        }
    }
}

fn atom(rest: &[u8]) -> Option<(String, &[u8])> {
    let mut depth = 0_usize;
    let mut end = rest.len();
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b' ' | b'(' | b')' | b'"' | b'{' if depth == 0 => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let (atom, left) = rest.split_at(end);
    Some((String::from_utf8(atom.to_vec()).ok()?, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Piece {
        Piece::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn commands_parse_lists_strings_and_literals() {
        let words = read(&[line("FETCH 1:* (UID BODY.PEEK[HEADER.FIELDS (A B)]<0.9>) (CHANGEDSINCE 5)")]).unwrap();
        let atom = |text: &str| Word::Atom(text.to_owned());
        let list = Word::List(vec![atom("UID"), atom("BODY.PEEK[HEADER.FIELDS (A B)]<0.9>")]);
        let since = Word::List(vec![atom("CHANGEDSINCE"), atom("5")]);
        assert_eq!(words, [atom("FETCH"), atom("1:*"), list, since]);

        let words = read(&[line("LOGIN {3}"), Piece::Literal(b"a\"b".to_vec()), line(" \"p \\\"w\"")]).unwrap();
        assert_eq!(words, [atom("LOGIN"), Word::Text(b"a\"b".to_vec()), Word::Text(b"p \"w".to_vec())]);
        assert_eq!(read(&[line("LIST \"\" \"*\"")]).unwrap().len(), 3);
        for wrong in ["X (a", "X a)", "X \"a", "X {a"] {
            assert_eq!(read(&[line(wrong)]), None, "{wrong}");
        }
    }
}
