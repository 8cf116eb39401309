//! Address lists as people and programs write them: RFC 5322 with its obsolete forms, and what is merely close to it.

use domain::Address;

use super::defects::{Defect, Defects};
use super::text;
use super::words;

/// Returns every address in a list, groups flattened. Entries in which nothing is usable are dropped with a defect.
pub fn parse(line: &str, defects: &mut Defects) -> Vec<Address> {
    let mut list =
        AddressListParser { found: Vec::new(), entry: AddressEntry::default(), held: Vec::new(), may_decode: true };
    list.read(line, defects);
    list.found
}

struct AddressListParser {
    found: Vec<Address>,
    entry: AddressEntry,
    /// Entries without an address: the start of a name with a comma in it, if an address in brackets follows.
    held: Vec<AddressEntry>,
    /// Whether an entry without an address may be decoded and read again; once is enough.
    may_decode: bool,
}

/// What was read of one entry so far.
#[derive(Default)]
struct AddressEntry {
    /// As written, quotes included: may turn out to be a bare address.
    raw: String,
    /// The same as a name: quotes removed.
    name: String,
    angle: Option<String>,
    comment: Option<String>,
    /// `@` was seen outside quotes.
    has_at: bool,
    /// A name stood before the angle brackets, so what stands behind them is none.
    is_named: bool,
}

impl AddressListParser {
    fn read(&mut self, line: &str, defects: &mut Defects) {
        // Each turns false when a closing mark was looked for in vain, so that it is not looked for again.
        let (mut has_quotes, mut has_comments) = (true, true);
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let tail = rest.get(c.len_utf8()..).unwrap_or_default();
            rest = match c {
                '"' if has_quotes => match quoted(tail) {
                    Some((content, after)) => {
                        self.entry.push_quoted(&content);
                        after
                    }
                    None => {
                        has_quotes = false;
                        tail
                    }
                },
                '"' => tail,
                '(' if has_comments => match comment(tail) {
                    Some((content, after)) => {
                        self.entry.comment.get_or_insert(content);
                        self.entry.push(' ');
                        after
                    }
                    None => {
                        has_comments = false;
                        tail
                    }
                },
                '<' => self.angle(tail, defects),
                '[' if self.entry.has_at => {
                    let end = tail.find([']', ',', ';', '>']).unwrap_or(tail.len());
                    self.entry.push('[');
                    tail.get(..end).unwrap_or_default().chars().for_each(|c| self.entry.push(c));
                    tail.get(end..).unwrap_or_default()
                }
                ',' => {
                    self.finish(defects);
                    tail
                }
                ';' => {
                    self.finish(defects);
                    self.release(defects);
                    tail
                }
                // The name of a group, or `mailto:`; either is not part of the address.
                ':' if !self.entry.has_at && self.entry.angle.is_none() => {
                    self.entry = AddressEntry::default();
                    tail
                }
                _ => {
                    self.entry.push(c);
                    tail
                }
            };
        }
        self.finish(defects);
        self.release(defects);
    }

    /// Reads `…>` and gives what follows.
    fn angle<'a>(&mut self, tail: &'a str, defects: &mut Defects) -> &'a str {
        // Two addresses without a comma between them.
        if self.entry.angle.as_deref().is_some_and(|angle| angle.contains('@')) {
            self.finish(defects);
        }
        let mut tail = tail.trim_start_matches(['<', ' ']);
        // `<a@<b@example.com>`: the inner one is the better guess.
        while let Some(at) = tail.find(['<', '>', ',', ';', '"']).filter(|at| tail.as_bytes().get(*at) == Some(&b'<')) {
            tail = tail.get(at + 1..).unwrap_or_default();
        }
        // A quoted local part may hold anything; behind it, and without a closing bracket, the address ends where the
        // entry does.
        let local = tail.strip_prefix('"').and_then(quoted).map_or(0, |(_, after)| tail.len() - after.len());
        let rest = tail.get(local..).unwrap_or_default();
        let end = local
            + match rest.find(['>', '<']) {
                Some(end) if rest.as_bytes().get(end) == Some(&b'>') => end,
                _ => rest.find([',', ';', '<']).unwrap_or(rest.len()),
            };
        let (content, after) = tail.split_at(end);
        self.entry.is_named = !self.entry.name.trim().is_empty();
        self.entry.angle = Some(content.to_owned());
        after.trim_start_matches('>')
    }

    fn finish(&mut self, defects: &mut Defects) {
        let entry = std::mem::take(&mut self.entry);
        let is_blank = entry.raw.trim().is_empty() && entry.angle.is_none();
        // `Someone (someone@example.com)`
        let hidden = entry.comment.as_ref().filter(|comment| comment.contains('@') && !entry.is_addressed());
        if let Some(hidden) = hidden.filter(|_| self.may_decode) {
            return self.read_hidden(hidden, defects);
        }
        if is_blank {
            return; // two commas, or an empty group
        }
        if !entry.is_addressed() {
            self.held.push(entry);
            return;
        }
        if entry.angle.is_none() {
            self.release(defects);
        }
        let mut names: Vec<String> = self.held.drain(..).map(|held| clean_name(&held.name, defects)).collect();
        match entry.address(defects) {
            Some(mut address) => {
                names.extend(address.name.take());
                address.name = Some(names.join(", ")).filter(|name| !name.is_empty());
                self.found.push(address);
            }
            None => defects.add(Defect::BadAddress),
        }
    }

    /// Handles held entries that turned out to stand alone: a local user, an encoded address, or only a name.
    fn release(&mut self, defects: &mut Defects) {
        for entry in std::mem::take(&mut self.held) {
            let written = entry.raw.trim();
            if self.may_decode && written.contains("=?") {
                let decoded = words::decode(written, defects);
                if decoded.contains('@') {
                    self.read_hidden(&decoded, defects);
                    continue;
                }
            }
            match entry.address(defects) {
                Some(address) => self.found.push(address),
                None => defects.add(Defect::BadAddress),
            }
        }
    }

    /// Reads an address that was hidden in an encoded word or a comment.
    fn read_hidden(&mut self, text: &str, defects: &mut Defects) {
        self.may_decode = false;
        self.read(text, defects);
        self.may_decode = true;
    }
}

impl AddressEntry {
    fn push(&mut self, c: char) {
        self.has_at |= c == '@';
        self.raw.push(c);
        if !self.is_named {
            self.name.push(c);
        }
    }

    fn push_quoted(&mut self, content: &str) {
        self.raw.push('"');
        self.raw.push_str(&content.replace('\\', "\\\\").replace('"', "\\\""));
        self.raw.push('"');
        self.name.push_str(content);
    }

    /// Returns whether it has something that is meant as an address.
    fn is_addressed(&self) -> bool {
        self.has_at || self.angle.is_some()
    }

    fn address(&self, defects: &mut Defects) -> Option<Address> {
        let (address, name) = match self.angle.as_deref().map(bare) {
            // `<Undisclosed-Recipients:;>` is a group that some gateway put into brackets.
            Some(angle) if angle.ends_with(';') && angle.contains(':') => return None,
            Some(angle) if !angle.is_empty() => (angle, self.name.clone()),
            // `someone@example.com <>`
            Some(_) if self.has_at => (bare(&self.raw), String::new()),
            // `MAILER-DAEMON <>`, as bounces have it.
            Some(_) => unbracketed(&self.raw, false)?,
            None => unbracketed(&self.raw, self.has_at)?,
        };
        let name = clean_name(&name, defects);
        let name =
            if name.is_empty() { clean_name(self.comment.as_deref().unwrap_or_default(), defects) } else { name };
        let address = text::single_line(address, defects);
        (!address.is_empty()).then(|| Address { name: Some(name).filter(|name| !name.is_empty()), address })
    }
}

/// Splits an entry without brackets into its address and its name: all that is beside the address.
fn unbracketed(raw: &str, has_at: bool) -> Option<(String, String)> {
    let raw = raw.trim();
    if !has_at {
        // A local user such as `root`; several words are only a name.
        let is_user = raw.contains(char::is_alphanumeric)
            && !raw.contains(char::is_whitespace)
            && !raw.contains("=?")
            && !raw.starts_with('"');
        return is_user.then(|| (raw.to_owned(), String::new()));
    }
    if !raw.contains(char::is_whitespace) {
        return Some((bare(raw), String::new()));
    }
    let joined = join_around_at(raw);
    let words: Vec<&str> = joined.split_whitespace().collect();
    // A quoted local part may hold spaces: all of it is the address.
    if words.len() == 1 || raw.starts_with('"') && raw.contains("\"@") {
        return Some((if words.len() == 1 { joined.clone() } else { raw.to_owned() }, String::new()));
    }
    let at = words.iter().position(|word| word.contains('@') && word.len() > 1)?;
    let address = bare(words.get(at)?.trim_matches(['"', '\'']));
    let name: Vec<&str> = words.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, word)| *word).collect();
    Some((address, name.join(" ").replace('"', "")))
}

/// Removes white space around `@`, which RFC 5322 §4.4 allows.
fn join_around_at(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for (i, piece) in raw.split('@').enumerate() {
        if i > 0 {
            out.truncate(out.trim_end().len());
            out.push('@');
        }
        out.push_str(if i > 0 { piece.trim_start() } else { piece });
    }
    out
}

/// Returns the address itself: no white space, no comment, no route, no `mailto:`.
fn bare(address: &str) -> String {
    let address = address.trim();
    let address = match address.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("mailto:") => address.get(7..).unwrap_or_default(),
        _ => address,
    };
    // An obsolete route: `@one,@two:someone@example.com`.
    let address = match address.rsplit_once(':') {
        Some((route, last)) if route.starts_with('@') => last,
        _ => address,
    };
    if address.starts_with('"') {
        return address.to_owned();
    }
    let mut out = String::with_capacity(address.len());
    let mut depth = 0usize;
    for c in address.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth > 0 || c.is_whitespace() => {}
            _ => out.push(c),
        }
    }
    out
}

fn clean_name(name: &str, defects: &mut Defects) -> String {
    let decoded = if name.contains("=?") { words::decode(name, defects) } else { name.to_owned() };
    let line = text::single_line(decoded, defects);
    let line = if line.contains("  ") { line.split_whitespace().collect::<Vec<_>>().join(" ") } else { line };
    // Quotes that were encoded along with the name.
    match line.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
        Some(inner) => inner.trim().to_owned(),
        None => line,
    }
}

/// Returns the content of a quoted string and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, text.get(at + 1..).unwrap_or_default())),
            '\\' => out.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => out.push(c),
        }
    }
    None
}

/// Returns the content of a comment, nested ones included, and what follows it.
fn comment(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut depth = 1usize;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some((out, text.get(at + 1..).unwrap_or_default())),
            ')' => depth -= 1,
            '\\' => {
                out.extend(chars.next().map(|(_, escaped)| escaped));
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<String> {
        let found = parse(line, &mut Defects::default());
        found.iter().map(|a| format!("{}|{}", a.name.as_deref().unwrap_or("-"), a.address)).collect()
    }

    fn defects(line: &str) -> Vec<String> {
        let mut defects = Defects::default();
        parse(line, &mut defects);
        defects.names()
    }

    #[test]
    fn ordinary_lists_are_read() {
        assert_eq!(read("Ann <ann@example.com>, bob@Example.COM"), ["Ann|ann@example.com", "-|bob@Example.COM"]);
        assert_eq!(read("\"Doe, Jane\" <jane@example.com>"), ["Doe, Jane|jane@example.com"]);
        assert_eq!(read("=?utf-8?q?Ren=C3=A9=2C_Dr?= <r@example.com>"), ["René, Dr|r@example.com"]);
        assert_eq!(read("\"=?utf-8?q?Ren=C3=A9?=\" <r@example.com>"), ["René|r@example.com"]);
        assert_eq!(read("\"a \\\"b\\\" c\" <x@example.com>"), ["a \"b\" c|x@example.com"]);
    }

    #[test]
    fn groups_are_flattened() {
        assert_eq!(read("Team: a@example.com, B <b@example.com>;, c@example.com").len(), 3);
        assert!(read("undisclosed-recipients:;").is_empty());
        assert!(defects("undisclosed-recipients:;").is_empty());
    }

    #[test]
    fn comments_name_a_bare_address() {
        assert_eq!(read("ann@example.com (Ann (the first) Smith)"), ["Ann (the first) Smith|ann@example.com"]);
        assert_eq!(read("Ann <ann(home)@example.com>"), ["Ann|ann@example.com"]);
    }

    #[test]
    fn careless_forms_are_understood() {
        assert_eq!(read("Ann Smith ann@example.com"), ["Ann Smith|ann@example.com"]);
        assert_eq!(read("ann @ example.com"), ["-|ann@example.com"]);
        assert_eq!(read("Ann <ann@example.com"), ["Ann|ann@example.com"]);
        assert_eq!(read("Ann <ann@example.com> (home"), ["Ann|ann@example.com"]);
        assert_eq!(read("<ann@example.com> Ann"), ["Ann|ann@example.com"]);
        assert_eq!(read("<<ann@example.com>>"), ["-|ann@example.com"]);
        assert_eq!(read("a@example.com; b@example.com,,"), ["-|a@example.com", "-|b@example.com"]);
        assert_eq!(read("<a@example.com> <b@example.com>"), ["-|a@example.com", "-|b@example.com"]);
        assert_eq!(read("<@one.test,@two.test:ann@example.com>"), ["-|ann@example.com"]);
        assert_eq!(read("root"), ["-|root"]);
        assert_eq!(read("mailto:ann@example.com"), ["-|ann@example.com"]);
        assert_eq!(read("ann@example.com <>"), ["-|ann@example.com"]);
        assert_eq!(read("\"Ann <ann@example.com>"), ["Ann|ann@example.com"]);
        assert_eq!(read("=?utf-8?q?Ann_=3Cann=40example.com=3E?="), ["Ann|ann@example.com"]);
        assert_eq!(read("Smith, Ann <ann@example.com>, Sales, <s@example.com>").len(), 2);
        assert_eq!(read("Smith, Ann <ann@example.com>"), ["Smith, Ann|ann@example.com"]);
        assert_eq!(read("root, ann@example.com"), ["-|root", "-|ann@example.com"]);
        assert_eq!(read("Ann,(<ann@example.com>)"), ["Ann|ann@example.com"]);
        assert_eq!(read("Ann <x@<ann@example.com>"), ["Ann|ann@example.com"]);
        assert!(read("<Undisclosed-Recipients:;>").is_empty());
        assert_eq!(read("ann@[192.0.2.1]"), ["-|ann@[192.0.2.1]"]);
        assert_eq!(read("<ann@[IPv6:2001:db8::1]>"), ["-|ann@[IPv6:2001:db8::1]"]);
    }

    #[test]
    fn other_scripts_and_quoted_local_parts_are_kept() {
        assert_eq!(read("用户 <用户@例子.test>"), ["用户|用户@例子.test"]);
        assert_eq!(read("\"john doe\"@example.com"), ["-|\"john doe\"@example.com"]);
        assert_eq!(read("J <\"john, doe\"@example.com>"), ["J|\"john, doe\"@example.com"]);
    }

    #[test]
    fn invalid_address_is_dropped_with_a_defect() {
        assert_eq!(read("MAILER-DAEMON <>"), ["-|MAILER-DAEMON"]);
        assert!(read("<>").is_empty());
        assert_eq!(defects("<>"), ["bad_address"]);
        assert_eq!(defects("Mail Delivery Subsystem"), ["bad_address"]);
        assert!(defects("").is_empty());
    }

    #[test]
    fn hostile_lists_take_linear_time() {
        for piece in ["(", "\"", "<", "a,", "(\"<", ":", "a@b <", "=?u?q?a", "@", "a@[", "\"<a"] {
            parse(&piece.repeat(100_000), &mut Defects::default());
        }
    }
}
