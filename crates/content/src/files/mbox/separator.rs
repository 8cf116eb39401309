//! The line before a message: `From alice@example.com Thu Nov 12 01:02:03 2026`.
//!
//! It was not specified before RFC 4155, and few programs follow that, so: a sender, a date in some order, and a tail. A body line
//! may start with `From ` too; what makes a separator is that all the rest of it is a date.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// Names the length of the exact message in our own exports.
pub const LENGTH_MARK: &str = "mailroom-bytes=";

const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Zones that mail programs wrote by name (RFC 5322 §4.3, and what central Europe used), in hours.
const ZONES: [(&str, i8); 16] = [
    ("UT", 0),
    ("UTC", 0),
    ("GMT", 0),
    ("Z", 0),
    ("EST", -5),
    ("EDT", -4),
    ("CST", -6),
    ("CDT", -5),
    ("MST", -7),
    ("MDT", -6),
    ("PST", -8),
    ("PDT", -7),
    ("CET", 1),
    ("MET", 1),
    ("CEST", 2),
    ("BST", 1),
];

/// A line that starts with `From `.
#[derive(Debug, PartialEq, Eq)]
pub struct Separator {
    /// In UTC unless the line names a zone.
    pub time: Option<Timestamp>,
    /// The length of the message after unquoting.
    pub length: Option<u64>,
    pub likeness: SeparatorConfidence,
}

/// How much the line alone looks like a separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeparatorConfidence {
    /// Nothing but a sender and a date, or the lone dash that Netscape wrote.
    Strong,
    /// No date that we can read, but no sentence either.
    Weak,
    None,
}

impl Separator {
    pub fn parse(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"From ")?;
        // The longest real ones are far shorter; a longer line is body text without breaks.
        let rest = String::from_utf8_lossy(&rest[..rest.len().min(1000)]);
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let length = words.iter().rev().find_map(|word| word.strip_prefix(LENGTH_MARK)?.parse().ok());
        let time = find_date(&words);
        let is_address = words.first().is_some_and(|sender| sender.contains('@') || sender.starts_with('<'));
        let has_clock = words.iter().any(|word| clock(word).is_some());
        let likeness = if time.is_some() || words == ["-"] {
            SeparatorConfidence::Strong
        } else if is_address || has_clock || words.len() <= 1 {
            SeparatorConfidence::Weak
        } else {
            SeparatorConfidence::None
        };
        Some(Self { time, length, likeness })
    }
}

/// Finds the date, which starts at a weekday or right after the sender.
fn find_date(words: &[&str]) -> Option<Timestamp> {
    // A sender may be missing or be several words.
    let weekday = words.iter().take(8).enumerate().filter(|(_, word)| is_weekday(word)).map(|(at, _)| at + 1);
    weekday.chain([1]).find_map(|start| read_date(words.get(start..)?))
}

fn is_weekday(word: &str) -> bool {
    position(&WEEKDAYS, word.trim_end_matches(',')).is_some()
}

#[derive(Default)]
struct DateParts {
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    clock: Option<(i8, i8, i8)>,
    offset: Option<Offset>,
}

fn read_date(words: &[&str]) -> Option<Timestamp> {
    let mut parts = DateParts::default();
    let count = words.iter().take_while(|word| parts.take(word)).count();
    if !is_tail(&words[count..]) {
        return None;
    }
    let (hour, minute, second) = parts.clock?;
    let civil = DateTime::new(parts.year?, parts.month?, parts.day?, hour, minute, second, 0).ok()?;
    parts.offset.unwrap_or(Offset::UTC).to_timestamp(civil).ok()
}

impl DateParts {
    /// Takes a word if it is a part of the date that is still missing; returns whether it is.
    fn take(&mut self, word: &str) -> bool {
        let word = word.trim_end_matches(',');
        if self.month.is_none()
            && let Some(month) = position(&MONTHS, word)
        {
            self.month = i8::try_from(month + 1).ok();
        } else if self.clock.is_none()
            && let Some(clock) = clock(word)
        {
            self.clock = Some(clock);
        } else if self.offset.is_none()
            && let Some(offset) = offset(word)
        {
            self.offset = Some(offset);
        } else if self.day.is_none()
            && word.len() <= 2
            && let Ok(day @ 1..=31) = word.parse()
        {
            self.day = Some(day);
        } else if self.year.is_none()
            && word.bytes().all(|b| b.is_ascii_digit())
            && let Ok(year) = word.parse::<i16>()
        {
            self.year = match (word.len(), year) {
                (4, year) => Some(year),
                (2, 70..) => Some(1900 + year),
                (2, year) => Some(2000 + year),
                (3, year) => Some(1900 + year), // a program that met the year 2000 unprepared
                _ => return false,
            };
        } else {
            return false;
        }
        true
    }
}

/// Returns whether the words are what programs write after the date.
fn is_tail(words: &[&str]) -> bool {
    match words {
        [] => true,
        [mark] if mark.starts_with(LENGTH_MARK) => true,
        ["remote", "from", ..] => true,
        // A zone by a name that we do not know, or as a comment.
        [zone] => zone.trim_matches(['(', ')']).bytes().all(|b| b.is_ascii_uppercase()) && zone.len() <= 7,
        _ => false,
    }
}

fn position(names: &[&str], word: &str) -> Option<usize> {
    names.iter().position(|name| name.eq_ignore_ascii_case(word))
}

fn clock(word: &str) -> Option<(i8, i8, i8)> {
    let mut numbers = word.split(':').map(|part| if part.len() <= 2 { part.parse::<i8>().ok() } else { None });
    let (hour, minute) = (numbers.next()??, numbers.next()??);
    let second = numbers.next().unwrap_or(Some(0))?;
    let fits = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    (fits && numbers.next().is_none()).then_some((hour, minute, second.min(59)))
}

fn offset(word: &str) -> Option<Offset> {
    if let Some((_, hours)) = ZONES.iter().find(|(name, _)| *name == word.trim_matches(['(', ')'])) {
        return Offset::from_hours(*hours).ok();
    }
    let digits = word.strip_prefix(['+', '-'])?;
    let sign = if word.starts_with('-') { -1 } else { 1 };
    let number: i32 =
        (digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())??;
    Offset::from_seconds(sign * (number / 100 * 3600 + number % 100 * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(line: &str) -> Option<String> {
        Separator::parse(line.as_bytes())?.time.map(|time| time.to_string())
    }

    #[test]
    fn dates_are_read_as_programs_write_them() {
        let noon = Some("2024-01-02T12:00:00Z".to_owned());
        for line in [
            "From alice@example.com Tue Jan  2 12:00:00 2024\n",
            "From - Tue Jan 02 12:00:00 2024\r\n",
            "From 1587@xxx Tue Jan 02 12:00:00 +0000 2024",
            "From MAILER-DAEMON Tue Jan  2 12:00 2024",
            "From alice Tue Jan  2 07:00:00 EST 2024",
            "From alice Tue Jan  2 13:00:00 2024 +0100",
            "From alice Tue, 2 Jan 2024 12:00:00 GMT",
            "From \"al ice\"@x Tue Jan  2 12:00:00 2024",
            "From uucp!alice Tue Jan  2 12:00:00 2024 remote from host",
            "From alice 2 Jan 24 12:00:00",
            "From Tue Jan  2 12:00:00 2024",
        ] {
            assert_eq!(time(line), noon, "{line}");
        }
    }

    #[test]
    fn sentences_are_no_separators() {
        for line in [
            "From here on",
            "From Monday to Tuesday",
            "From Tue Jan 2 at 12:00:00 2024 we met",
            "From alice Tue Jan  2 12:00:00 2024 I learned",
            "From alice Tue Feb 30 12:00:00 2024",
        ] {
            assert_eq!(time(line), None, "{line}");
        }
    }

    #[test]
    fn undated_line_is_judged_by_its_words() {
        fn likeness(line: &str) -> SeparatorConfidence {
            Separator::parse(line.as_bytes()).unwrap().likeness
        }

        assert_eq!(likeness("From - \n"), SeparatorConfidence::Strong);
        assert_eq!(likeness("From alice@x yesterday"), SeparatorConfidence::Weak);
        assert_eq!(likeness("From what I see"), SeparatorConfidence::None);
    }

    #[test]
    fn our_mark_gives_the_length() {
        let line = b"From alice Tue Jan  2 12:00:00 2024 mailroom-bytes=17\n";

        assert_eq!(Separator::parse(line).unwrap().length, Some(17));
        assert!(Separator::parse(line).unwrap().time.is_some());
    }
}
