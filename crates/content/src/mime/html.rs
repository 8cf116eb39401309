//! The text a person reads in HTML: one pass, no tree, no recursion, so depth and size of the markup cost nothing.

use mail_parser::decoders::html::add_html_token;

/// Blocks become lines, paragraphs become blank lines, everything invisible is dropped.
pub fn to_text(html: &str) -> String {
    let mut writer = HtmlTextWriter::default();
    let mut scan = HtmlScanner { html, at: 0, has_quote: [true; 2] };
    while scan.at < html.len() {
        let rest = scan.rest();
        let open = memchr::memchr(b'<', rest.as_bytes()).unwrap_or(rest.len());
        writer.text(rest.get(..open).unwrap_or_default());
        scan.at += open;
        if scan.at >= html.len() {
            break;
        }
        match scan.markup() {
            Markup::Literal => writer.text("<"),
            Markup::Invisible => {}
            Markup::Tag { name, is_close } => {
                let name = name.to_ascii_lowercase();
                if !is_close && is_raw(&name) {
                    scan.skip_raw(&name);
                } else {
                    writer.tag(&name, is_close);
                }
            }
        }
    }
    writer.finish()
}

/// Elements whose contents are not for people. The head has no others, and it is often left open.
fn is_raw(name: &str) -> bool {
    matches!(name, "script" | "style" | "title" | "xml" | "noembed" | "noframes" | "iframe")
}

enum Markup<'a> {
    Literal,
    Invisible,
    Tag { name: &'a str, is_close: bool },
}

struct HtmlScanner<'a> {
    html: &'a str,
    at: usize,
    /// Whether a `"` or `'` may still follow; each is searched for in vain only once.
    has_quote: [bool; 2],
}

impl<'a> HtmlScanner<'a> {
    fn rest(&self) -> &'a str {
        self.html.get(self.at..).unwrap_or_default()
    }

    /// Reads what starts with `<` and moves behind it.
    fn markup(&mut self) -> Markup<'a> {
        let rest = self.rest();
        if let Some(comment) = rest.strip_prefix("<!--") {
            // `<!-->` is a complete comment to browsers.
            let length = if comment.starts_with('>') { Some(1) } else { comment.find("-->").map(|end| end + 3) };
            self.at = length.map_or(self.html.len(), |length| self.at + 4 + length);
            return Markup::Invisible;
        }
        if rest.starts_with("<!") || rest.starts_with("<?") {
            // Quotes do not count here: they are often odd in number.
            let end = memchr::memchr(b'>', rest.as_bytes());
            self.at = end.map_or(self.html.len(), |end| self.at + end + 1);
            return Markup::Invisible;
        }
        let is_close = rest.starts_with("</");
        let name_start = 1 + usize::from(is_close);
        let tail = rest.get(name_start..).unwrap_or_default();
        if !tail.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.at += 1;
            return Markup::Literal;
        }
        let end = tail.find(|c: char| c.is_ascii_whitespace() || matches!(c, '>' | '/' | '<')).unwrap_or(tail.len());
        self.skip_to_close(name_start + end);
        Markup::Tag { name: tail.get(..end).unwrap_or_default(), is_close }
    }

    /// Moves behind the `>` that ends a tag; one inside quotes does not. A tag that never ends takes all the rest.
    fn skip_to_close(&mut self, offset: usize) {
        let bytes = self.html.as_bytes();
        let from = (self.at + offset).min(bytes.len());
        let mut at = from;
        loop {
            let Some(found) = memchr::memchr3(b'>', b'"', b'\'', bytes.get(at..).unwrap_or_default()) else {
                self.at = bytes.len();
                return;
            };
            at += found;
            let mark = bytes.get(at).copied().unwrap_or(b'>');
            let before = bytes.get(from..at).unwrap_or_default().trim_ascii_end();
            at += 1;
            if mark == b'>' {
                break;
            }
            // Only a value is quoted; a quote anywhere else is a slip.
            if before.last() != Some(&b'=') {
                continue;
            }
            let has_quote = &mut self.has_quote[usize::from(mark == b'"')];
            if !*has_quote {
                continue;
            }
            match memchr::memchr(mark, bytes.get(at..).unwrap_or_default()) {
                Some(end) => at += end + 1,
                None => *has_quote = false, // a stray quote does not swallow the rest of the mail
            }
        }
        self.at = at;
    }

    /// Moves behind `</name>`; without one, everything that follows is invisible, as it is in browsers.
    fn skip_raw(&mut self, name: &str) {
        let rest = self.rest();
        for at in memchr::memmem::find_iter(rest.as_bytes(), b"</") {
            let tail = rest.as_bytes().get(at + 2..at + 2 + name.len());
            if tail.is_some_and(|tail| tail.eq_ignore_ascii_case(name.as_bytes())) {
                self.at += at;
                self.skip_to_close(2 + name.len());
                return;
            }
        }
        self.at = self.html.len();
    }
}

/// Text with its white space collapsed as a browser would.
#[derive(Default)]
struct HtmlTextWriter {
    out: String,
    wants_space: bool,
    /// Line breaks owed before the next visible character.
    wants_breaks: usize,
    preformatted: usize,
}

impl HtmlTextWriter {
    fn tag(&mut self, name: &str, is_close: bool) {
        match name {
            "br" => {
                // Counted, not merged: two of them are a blank line.
                self.wants_space = false;
                self.wants_breaks = (self.wants_breaks + 1).min(3);
            }
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "blockquote" | "ul" | "ol" | "dl" => self.break_line(2),
            "pre" => {
                self.preformatted = if is_close { self.preformatted.saturating_sub(1) } else { self.preformatted + 1 };
                self.break_line(2);
            }
            "li" => {
                self.break_line(1);
                if !is_close {
                    self.literal("- ");
                }
            }
            "div" | "tr" | "table" | "tbody" | "thead" | "tfoot" | "hr" | "section" | "article" | "header"
            | "footer" | "main" | "nav" | "aside" | "address" | "dt" | "dd" | "form" | "center" | "fieldset"
            | "figure" | "figcaption" | "caption" | "option" | "legend" | "html" | "head" | "body" => {
                self.break_line(1);
            }
            "td" | "th" => self.wants_space = true,
            _ => {}
        }
    }

    fn break_line(&mut self, breaks: usize) {
        self.wants_space = false;
        self.wants_breaks = self.wants_breaks.max(breaks);
    }

    fn text(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = memchr::memchr(b'&', rest.as_bytes()) {
            self.plain(rest.get(..at).unwrap_or_default());
            let tail = rest.get(at + 1..).unwrap_or_default();
            rest = match entity(tail) {
                Some((decoded, length)) => {
                    self.plain(&decoded);
                    tail.get(length..).unwrap_or_default()
                }
                None => {
                    self.plain("&");
                    tail
                }
            };
        }
        self.plain(rest);
    }

    fn plain(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\n' | '\r' | ' ' | '\t' if self.preformatted > 0 => self.keep_space(c),
                ' ' | '\t' | '\n' | '\r' | '\x0C' | '\u{A0}' => self.wants_space = true,
                '\0' | '\u{AD}' | '\u{200B}' | '\u{FEFF}' | '\u{34F}' => {}
                // Joiners mean something between letters; newsletters also use them as invisible padding.
                '\u{200C}' | '\u{200D}' if self.wants_space || self.wants_breaks > 0 || self.out.is_empty() => {}
                _ => self.visible(c),
            }
        }
    }

    fn keep_space(&mut self, c: char) {
        match c {
            '\r' => {}
            '\n' => self.wants_breaks = (self.wants_breaks + 1).min(3),
            _ if self.wants_breaks > 0 || self.out.is_empty() => {
                // Indentation at the start of a line is part of preformatted text.
                self.settle();
                self.out.push(c);
            }
            _ => self.out.push(c),
        }
    }

    fn visible(&mut self, c: char) {
        self.settle();
        self.out.push(c);
    }

    /// Writes a mark of our own, such as a bullet: what follows it is on the same line.
    fn literal(&mut self, text: &str) {
        self.settle();
        self.out.push_str(text);
    }

    /// Writes the breaks and spaces that are owed.
    fn settle(&mut self) {
        if self.out.is_empty() {
            self.wants_breaks = 0;
            self.wants_space = false;
        }
        if self.wants_breaks > 0 {
            self.out.truncate(self.out.trim_end_matches([' ', '\t']).len());
            if self.out == "-" || self.out.ends_with("\n-") {
                self.out.push(' '); // a paragraph directly inside a list item stays beside its bullet
            } else {
                self.out.extend(std::iter::repeat_n('\n', self.wants_breaks));
            }
        } else if self.wants_space && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
        self.wants_breaks = 0;
        self.wants_space = false;
    }

    fn finish(mut self) -> String {
        self.out.truncate(self.out.trim_end().len());
        self.out
    }
}

/// Returns what an entity stands for, and its length after the `&`.
fn entity(tail: &str) -> Option<(String, usize)> {
    let bytes = tail.as_bytes();
    let is_number = bytes.first() == Some(&b'#');
    let name_length =
        bytes.iter().skip(usize::from(is_number)).take(32).take_while(|b| b.is_ascii_alphanumeric()).count();
    let length = name_length + usize::from(is_number);
    let name = tail.get(..length).filter(|_| name_length > 0)?;
    let is_ended = bytes.get(length) == Some(&b';');
    let taken = length + usize::from(is_ended);
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return Some((numbered(code.ok()?), taken));
    }
    // Without a semicolon only the oldest names count, and not inside a link's parameters.
    if !is_ended
        && (bytes.get(length) == Some(&b'=') || !matches!(name, "nbsp" | "amp" | "lt" | "gt" | "quot" | "copy"))
    {
        return None;
    }
    let token = format!("&{name};");
    let mut decoded = String::new();
    add_html_token(&mut decoded, token.as_bytes(), false);
    (decoded != token).then_some((decoded, taken))
}

fn numbered(code: u32) -> String {
    let c = match u8::try_from(code) {
        Ok(0) => return String::new(),
        // Written by those who think in windows-1252.
        Ok(byte @ 0x80..=0x9F) => return encoding_rs::WINDOWS_1252.decode_without_bom_handling(&[byte]).0.into_owned(),
        _ => char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    c.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_lines_and_space_collapses() {
        assert_eq!(to_text("<p>One\n  two</p><p>three<br>four</p>"), "One two\n\nthree\nfour");
        assert_eq!(to_text("<div>a</div><div>b</div>c"), "a\nb\nc");
        assert_eq!(to_text("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>"), "a b\nc");
        assert_eq!(to_text("see <a href=\"https://example.com/?a>b\">this <b>page</b></a>."), "see this page.");
    }

    #[test]
    fn lists_get_bullets() {
        assert_eq!(to_text("x<ul><li>one</li><li><p>two</p></li></ul>y"), "x\n\n- one\n- two\n\ny");
    }

    #[test]
    fn invisible_things_are_dropped() {
        let html = "<html><head><title>t</title><style>p{}</style></head><body><!-- c --><script>if (a<b) x()</script>\
                    <p>seen</p><?xml x?><!DOCTYPE y></body></html>";

        assert_eq!(to_text(html), "seen");
        assert_eq!(to_text("a<style>b"), "a");
        assert_eq!(to_text("a<!-- b"), "a");
    }

    #[test]
    fn entities_are_decoded() {
        assert_eq!(
            to_text("&lt;b&gt; &amp;amp; caf&eacute; &#233;&#xe9;&#146; &bogus; AT&T &nbsp;x"),
            "<b> &amp; café éé’ &bogus; AT&T x"
        );
        assert_eq!(to_text("&#0;&#x110000;&#99999999999;"), "\u{FFFD}&#99999999999;");
        assert_eq!(to_text("?a=1&copy=2 &copy 2024"), "?a=1&copy=2 © 2024");
    }

    #[test]
    fn preformatted_text_keeps_its_shape() {
        assert_eq!(to_text("<pre>a\n  b\n\nc</pre>d"), "a\n  b\n\nc\n\nd");
    }

    #[test]
    fn broken_markup_is_still_read() {
        assert_eq!(to_text("1 < 2 and <3"), "1 < 2 and <3");
        assert_eq!(to_text("<p title='it\"s>seen</p>"), "seen");
        assert_eq!(to_text("<!DOCTYPE html \"a\" b\"><p class=\"a\"\">seen</p>"), "seen");
        assert_eq!(to_text("<html><head><style>x</style><p>head left open"), "head left open");
        assert_eq!(to_text("a <b"), "a");
    }

    #[test]
    fn hostile_markup_takes_linear_time() {
        for piece in ["<div>", "<a \"", "<a '", "<", "&", "<!--", "</", "<pre> ", "<li>", "<script>", "<br>", "<p>x"] {
            to_text(&piece.repeat(200_000));
        }
    }
}
