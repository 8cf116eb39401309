//! Sentences and paragraphs from a language's lexicon.

use std::sync::LazyLock;

use super::data::entries;
use super::lexicon::{Language, Lexicon};
use super::rng::Rng;

/// The two halves of invented project names. Few are used often and many once, so that searches differ in size.
static PROJECT_STARTS: LazyLock<Vec<&str>> =
    LazyLock::new(|| entries(include_str!("../../data/project_name_starts.txt")));
static PROJECT_ENDS: LazyLock<Vec<&str>> = LazyLock::new(|| entries(include_str!("../../data/project_name_ends.txt")));

/// Writes random text in one language.
#[derive(Debug)]
pub struct TextWriter<'a> {
    pub rng: &'a mut Rng,
    pub language: Language,
    pub lexicon: &'static Lexicon,
}

impl<'a> TextWriter<'a> {
    pub fn new(rng: &'a mut Rng, language: Language) -> Self {
        Self { rng, language, lexicon: language.lexicon() }
    }

    /// Writes paragraphs separated by empty lines, about `length` bytes in all.
    pub fn text(&mut self, length: usize) -> String {
        let mut text = String::with_capacity(length + 128);
        let mut left_in_paragraph = self.rng.between(2, 6);
        while text.len() < length {
            if left_in_paragraph == 0 {
                text.push_str("\n\n");
                left_in_paragraph = self.rng.between(2, 6);
            } else if !text.is_empty() && !text.ends_with('\n') && !self.language.is_east_asian() {
                text.push(' ');
            }
            let template = *self.rng.pick(&self.lexicon.sentences);
            self.append(&mut text, template);
            left_in_paragraph -= 1;
        }
        text
    }

    /// Writes English text, for files that can hold ASCII only.
    pub fn english_text(&mut self, length: usize) -> String {
        TextWriter::new(self.rng, Language::English).text(length)
    }

    pub fn sentence(&mut self) -> String {
        let template = *self.rng.pick(&self.lexicon.sentences);
        self.fill(template)
    }

    pub fn subject(&mut self) -> String {
        let template = *self.rng.pick(&self.lexicon.subjects);
        let mut subject = self.fill(template);
        // Only English nouns come without an article, so only they can begin a subject.
        if self.language == Language::English
            && let Some(first) = subject.get_mut(..1)
        {
            first.make_ascii_uppercase();
        }
        subject
    }

    pub fn project(&mut self) -> String {
        let mut name = String::new();
        self.append_project(&mut name);
        name
    }

    /// Fills the slots of a template.
    pub fn fill(&mut self, template: &str) -> String {
        let mut text = String::with_capacity(template.len() + 48);
        self.append(&mut text, template);
        text
    }

    fn append(&mut self, out: &mut String, template: &str) {
        let mut rest = template;
        // Byte by byte: `str::find` is slower on texts as short as these.
        while let Some(open) = rest.bytes().position(|byte| byte == b'{') {
            let close = open + rest[open..].bytes().position(|byte| byte == b'}').unwrap_or(0);
            out.push_str(&rest[..open]);
            self.append_slot(out, &rest[open + 1..close]);
            rest = &rest[close + 1..];
        }
        out.push_str(rest);
    }

    fn append_slot(&mut self, out: &mut String, slot: &str) {
        let lexicon = self.lexicon;
        match slot {
            "thing" => out.push_str(self.rng.pick_skewed::<&str>(&lexicon.things)),
            "verb" => out.push_str(self.rng.pick_skewed::<&str>(&lexicon.verbs)),
            "quality" => out.push_str(self.rng.pick_skewed::<&str>(&lexicon.qualities)),
            "day" => out.push_str(self.rng.pick::<&str>(&lexicon.days)),
            "place" => out.push_str(self.rng.pick::<&str>(&lexicon.places)),
            "person" => out.push_str(self.rng.pick(&lexicon.given_names).written),
            "project" => self.append_project(out),
            "amount" => self.append_amount(out),
            "count" => out.push_str(&self.rng.between(2, 23).to_string()),
            "percent" => out.push_str(&self.rng.between(80, 99).to_string()),
            "code" => self.append_code(out),
            _ => {}
        }
    }

    fn append_project(&mut self, out: &mut String) {
        out.push_str(self.rng.pick_skewed::<&str>(&PROJECT_STARTS));
        out.push_str(self.rng.pick_skewed::<&str>(&PROJECT_ENDS));
    }

    fn append_amount(&mut self, out: &mut String) {
        let cents = self.rng.between(1_000, 9_999_999);
        let (euros, cents) = (cents / 100, cents % 100);
        match (self.language, euros / 1000) {
            (Language::English, 0) => out.push_str(&format!("EUR {euros}.{cents:02}")),
            (Language::English, thousands) => {
                out.push_str(&format!("EUR {thousands},{:03}.{cents:02}", euros % 1000));
            }
            (_, 0) => out.push_str(&format!("{euros},{cents:02} EUR")),
            (_, thousands) => out.push_str(&format!("{thousands}.{:03},{cents:02} EUR", euros % 1000)),
        }
    }

    fn append_code(&mut self, out: &mut String) {
        let (first, second) = (capital_letter(self.rng), capital_letter(self.rng));
        out.push_str(&format!("{first}{second}-{:05}", self.rng.below(100_000)));
    }
}

fn capital_letter(rng: &mut Rng) -> char {
    char::from(b'A' + rng.below(26) as u8)
}

/// Wraps lines at spaces to `width` letters. Text without spaces stays unchanged.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    let (mut column, mut done) = (0, 0);
    let mut last_space = None; // where the line can still be broken, and the column there
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\n' => (column, last_space) = (0, None),
            b' ' => {
                last_space = Some((at, column));
                column += 1;
            }
            // UTF-8 continuation bytes take no column.
            0x80..0xC0 => {}
            _ => column += 1,
        }
        if column > width
            && let Some((space, column_there)) = last_space.take()
        {
            out.push_str(&text[done..space]);
            out.push('\n');
            done = space + 1;
            column -= column_there + 1;
        }
    }
    out.push_str(&text[done..]);
    out
}

/// Appends text escaped for HTML and XML.
pub fn escape_html(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            _ => "&quot;",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_slot_is_filled() {
        let mut rng = Rng::new(11);
        for language in Language::ALL {
            let mut writer = TextWriter::new(&mut rng, language);
            let lexicon = language.lexicon();
            for template in lexicon.sentences.iter().chain(&lexicon.subjects).chain(&lexicon.greetings) {
                let slots = template.matches('{').count();

                let text = writer.fill(template);

                assert!(!text.contains(['{', '}']), "{text}");
                assert!(slots == 0 || text.len() > template.len().saturating_sub(10 * slots), "{text}");
            }
        }
    }

    #[test]
    fn wrapped_lines_keep_their_words() {
        let text = "one two three\n\nfour five six seven";

        let wrapped = wrap(text, 9);

        assert_eq!(wrapped, "one two\nthree\n\nfour five\nsix seven");
    }
}
