//! Parses dates in mail, from RFC 5322 to the variations that scripts write.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Parses a date. Returns `None` for what is not a date, or not one of the era of email.
pub fn parse(text: &str) -> Option<Timestamp> {
    // No date is longer; junk behind one is not worth reading.
    let text = without_comments(text.get(..text.floor_char_boundary(200)).unwrap_or_default());
    let mut fields = DateFields::default();
    for token in text.split(|c: char| c.is_whitespace() || c == ',').filter(|token| !token.is_empty()) {
        fields.take(token)?;
    }
    fields.timestamp()
}

/// Parses the date of a Received header, which is after its last semicolon.
pub fn received(text: &str) -> Option<Timestamp> {
    text.rsplit_once(';').and_then(|(_, date)| parse(date))
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                out.push(' ');
            }
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// Parts of a date in whatever order they come.
#[derive(Default)]
struct DateFields {
    year: Option<i16>,
    month: Option<i8>,
    day: Option<i8>,
    time: Option<(i8, i8, i8)>,
    /// Seconds east of Greenwich.
    offset: Option<i32>,
    is_afternoon: Option<bool>,
}

impl DateFields {
    /// Takes one token. Returns `None` if the whole cannot be a date any more.
    fn take(&mut self, token: &str) -> Option<()> {
        let token = token.trim_end_matches('.');
        let lower = token.to_ascii_lowercase();
        if lower.is_empty() || is_weekday(&lower) {
            return Some(());
        }
        if let Some(month) = month(&lower) {
            self.month = self.month.or(Some(month));
            return Some(());
        }
        if matches!(lower.as_str(), "am" | "pm") {
            self.is_afternoon = Some(lower == "pm");
            return Some(());
        }
        if let Some((date, time)) = lower.split_once('t').filter(|(date, _)| is_numeric_date(date)) {
            self.date(date)?;
            return self.clock(time);
        }
        if lower.contains(':') && lower.starts_with(|c: char| c.is_ascii_digit()) {
            return self.clock(&lower);
        }
        if self.time.is_some()
            && self.offset.is_none()
            && let Some(offset) = zone(&lower)
        {
            self.offset = Some(offset?);
            return Some(());
        }
        if lower.bytes().all(|b| b.is_ascii_digit()) {
            return self.number(&lower);
        }
        if lower.contains(['-', '/', '.']) && lower.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return self.date(&lower);
        }
        // Ordinals as in "3rd", then words that say nothing about time, but only once there is a time.
        if let Some(day) = ["st", "nd", "rd", "th"].iter().find_map(|suffix| lower.strip_suffix(suffix)) {
            return self.number(day);
        }
        self.time.map(|_| ())
    }

    /// Takes a number as the day or the year, whichever is missing.
    fn number(&mut self, digits: &str) -> Option<()> {
        if self.day.is_none() && digits.len() <= 2 {
            self.day = Some(digits.parse().ok()?);
        } else if self.year.is_none() {
            self.year = Some(year(digits)?);
        } else if self.time.is_none() && digits.len() == 4 {
            self.clock(&format!("{}:{}", digits.get(..2)?, digits.get(2..)?))?;
        } else if self.time.is_none() {
            return None;
        }
        Some(())
    }

    /// Takes `2020-01-31`, `2020/1/31`, `31-Jan-2020`, `31.01.2020`, and `1/31/2020` where only one reading is
    /// possible.
    fn date(&mut self, text: &str) -> Option<()> {
        // A Finnish clock: 10.30.00.
        if self.day.is_some() && self.month.is_some() && text.contains('.') && self.time.is_none() {
            return self.clock(&text.replace('.', ":"));
        }
        let parts: Vec<&str> = text.splitn(4, ['-', '/', '.']).collect();
        let [a, b, c] = parts.as_slice() else { return None };
        if let Some(named) = month(b) {
            self.day = Some(a.parse().ok()?);
            self.month = Some(named);
            self.year = Some(year(c)?);
        } else if a.len() == 4 {
            self.year = Some(year(a)?);
            self.month = Some(b.parse().ok()?);
            self.day = Some(c.parse().ok()?);
        } else {
            let (a, b): (i8, i8) = (a.parse().ok()?, b.parse().ok()?);
            let is_day_first = text.contains('.') || a > 12 || a == b;
            if !is_day_first && b <= 12 {
                return None; // 3/4/2020 is two different days on two sides of the ocean
            }
            (self.day, self.month) = if is_day_first { (Some(a), Some(b)) } else { (Some(b), Some(a)) };
            self.year = Some(year(c)?);
        }
        Some(())
    }

    /// Takes `9:5`, `10:00:00.123`, perhaps with a zone or am/pm attached.
    fn clock(&mut self, text: &str) -> Option<()> {
        if self.time.is_some() {
            return Some(());
        }
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.'))).unwrap_or(text.len());
        let (clock, tail) = text.split_at(end);
        let mut parts = clock.split(':');
        let hour = parts.next()?.parse().ok()?;
        let minute = parts.next().map_or(Some(0), |minute| minute.parse().ok())?;
        let second = parts.next().unwrap_or("0");
        let second: i8 = second.split('.').next().unwrap_or("0").parse().ok()?;
        self.time = Some((hour, minute, second.min(59))); // a leap second
        match tail {
            "" => {}
            "am" | "pm" => self.is_afternoon = Some(tail == "pm"),
            zone_name => self.offset = Some(zone(zone_name)??),
        }
        Some(())
    }

    fn timestamp(self) -> Option<Timestamp> {
        let (mut hour, minute, second) = self.time.unwrap_or((0, 0, 0));
        match self.is_afternoon {
            Some(true) if hour < 12 => hour += 12,
            Some(false) if hour == 12 => hour = 0,
            _ => {}
        }
        let date = DateTime::new(self.year?, self.month?, self.day?, hour, minute, second, 0).ok()?;
        let local = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let time = Timestamp::from_second(local.as_second() - i64::from(self.offset.unwrap_or(0))).ok()?;
        // Mail is younger, but archives and the standards themselves hold messages dated before it was.
        let years = 1950..=2100;
        years.contains(&time.to_zoned(TimeZone::UTC).year()).then_some(time)
    }
}

fn is_weekday(lower: &str) -> bool {
    let names = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    lower.len() >= 3 && names.iter().any(|name| name.starts_with(lower)) || matches!(lower, "tues" | "thurs" | "weds")
}

fn month(lower: &str) -> Option<i8> {
    let names = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    if lower.len() < 3 {
        return None;
    }
    let lower = if lower == "sept" { "sep" } else { lower };
    (1..).zip(names).find(|(_, name)| name.starts_with(lower)).map(|(number, _)| number)
}

/// Parses a year (RFC 5322 §4.3): two digits below 50 are of this century, three digits count from 1900.
fn year(digits: &str) -> Option<i16> {
    let number: i16 = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
    Some(match digits.len() {
        1 | 2 if number < 50 => 2000 + number,
        1..=3 => 1900 + number,
        _ => number,
    })
}

fn is_numeric_date(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-') && text.contains('-')
}

const HOUR_SECONDS: i32 = 3600;

/// Parses a time zone. Returns `None` if it is not a zone, `Some(None)` if it is an impossible one.
#[expect(clippy::option_option, reason = "not a zone and an impossible zone lead to different answers")]
fn zone(lower: &str) -> Option<Option<i32>> {
    if let Some(seconds) = named_zone(lower) {
        return Some(Some(seconds));
    }
    let numeric = lower.strip_prefix("gmt").or(lower.strip_prefix("utc")).or(lower.strip_prefix("ut")).unwrap_or(lower);
    let (sign, digits) = match numeric.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits.trim_start_matches('-')),
        // RFC 5322 §4.3: military letters were used with either sign, so they tell nothing.
        (letter, "") if letter.starts_with(|c: char| c.is_ascii_alphabetic()) => return Some(Some(0)),
        (_, _) => return numeric_without_sign(numeric),
    };
    // What follows the digits is not part of the zone: `+0000-62495-238`.
    let digits: String = digits.chars().take_while(|&c| c == ':' || c.is_ascii_digit()).filter(|&c| c != ':').collect();
    if digits.is_empty() || digits.len() > 4 {
        return Some(None);
    }
    let number: i32 = digits.parse().ok()?;
    let (hours, minutes) = if digits.len() <= 2 { (number, 0) } else { (number / 100, number % 100) };
    Some((hours < 24 && minutes < 60).then_some(sign * (hours * HOUR_SECONDS + minutes * 60)))
}

/// Returns the offset of a zone with a name, in seconds.
fn named_zone(lower: &str) -> Option<i32> {
    let hours = match lower {
        "gmt" | "ut" | "utc" | "z" | "wet" | "zulu" => 0,
        "bst" | "cet" | "met" | "mez" | "west" => 1,
        "cest" | "mest" | "mesz" | "eet" | "sast" => 2,
        "eest" | "msk" => 3,
        "ist" => return Some(5 * HOUR_SECONDS + HOUR_SECONDS / 2),
        "sgt" | "hkt" | "awst" => 8,
        "jst" | "kst" => 9,
        "aest" => 10,
        "aedt" => 11,
        "nzst" => 12,
        "nzdt" => 13,
        "adt" | "brt" | "art" => -3,
        "ast" | "edt" => -4,
        "est" | "cdt" => -5,
        "cst" | "mdt" => -6,
        "mst" | "pdt" => -7,
        "pst" | "akdt" => -8,
        "hst" => -10,
        _ => return None,
    };
    Some(hours * HOUR_SECONDS)
}

/// Parses a zone such as `0100` without its sign; a year after the time (`ctime`) is not one.
#[expect(clippy::option_option, reason = "the same answers as `zone`")]
fn numeric_without_sign(digits: &str) -> Option<Option<i32>> {
    let is_zone = digits.len() == 4 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    let number: i32 = digits.parse().ok().filter(|_| is_zone)?;
    Some((number % 100 < 60).then_some(number / 100 * 3600 + number % 100 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        parse(text).map_or_else(|| "-".to_owned(), |time| time.to_string())
    }

    #[test]
    fn standard_dates_are_read() {
        assert_eq!(read("Fri, 21 Nov 1997 09:55:06 -0600"), "1997-11-21T15:55:06Z");
        assert_eq!(read("21 Nov 97 09:55:06 GMT"), "1997-11-21T09:55:06Z");
        assert_eq!(read("Thu,\n 13 Feb 1969 23:32 -0330 (Newfoundland Time)"), "1969-02-14T03:02:00Z");
        assert_eq!(read("Mon, 1 Jan 2024 00:00:60 +0000"), "2024-01-01T00:00:59Z");
    }

    #[test]
    fn careless_dates_are_read() {
        let expected = "2003-07-04T08:05:00Z";
        for text in [
            "4 Jul 2003 10:05 +0200",
            "Fri 4 Jul 03 10:05:00 CEST",
            "Friday, 04-Jul-03 08:05:00 GMT",
            "Fri, 4 July 2003 10:05:00 +02:00",
            "Fri Jul  4 08:05:00 2003",
            "Fri Jul 4 04:05:00 EDT 2003",
            "July 4, 2003 8:05 AM",
            "2003-07-04T08:05:00Z",
            "2003-07-04T10:05:00.000+02:00",
            "2003-07-04 10:05:00 +0200",
            "Fri, 4 (the day) Jul 2003 10:5:0 GMT+0200",
            "4.7.2003 10:05 MEST",
            "Fri, 4 Jul 103 08:05:00 UT",
            "Fri, 4 Jul 2003 08.05.00 GMT",
            "Fri, 4 Jul 2003 08:05:00",
            "Fri, 4 Jul 2003 08:05:00 A",
            "Fri, 4 Jul 2003 08:05:00 +0000-62495",
            "Fri, 4 Jul 2003 04:05:00 (EDT) -0400",
            "Fri, 4 Jul 2003 8:05:00 AM GMT",
            "7/31/2003 08:05:00",
        ] {
            let expected = if text.starts_with("7/31") { "2003-07-31T08:05:00Z" } else { expected };
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn invalid_date_is_none() {
        for text in [
            "",
            "garbage",
            "yesterday",
            "Fri, 31 Feb 2003 10:00:00 +0000",
            "Fri, 4 Jul 2003 25:00:00 +0000",
            "Fri, 4 Jul 1903 10:00:00 +0000",
            "Fri, 4 Jul 2203 10:00:00 +0000",
            "3/4/2020 10:00",
            "10:00:00 +0000",
            "Fri, 4 Jul 2003 10:00:00 +9999",
            "99999999999999999999",
        ] {
            assert_eq!(read(text), "-", "{text}");
        }
    }

    #[test]
    fn a_received_date_follows_the_last_semicolon() {
        let text = "from a by b with ESMTP id 1; x; Fri, 21 Nov 1997 10:01:22 -0600 (CST)";

        assert_eq!(received(text).unwrap().to_string(), "1997-11-21T16:01:22Z");
        assert_eq!(received("from a by b"), None);
    }
}
