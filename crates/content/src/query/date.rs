//! The dates that a search takes: a year, a month, a day or an instant, in UTC unless it says otherwise.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// Returns the first moment of the year, month, day or instant that `text` names.
pub fn parse(text: &str) -> Option<Timestamp> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Some(instant);
    }
    let moment = match day(text) {
        Some(day) => day.at(0, 0, 0, 0),
        None if text.contains(['T', 't']) => text.parse::<DateTime>().ok()?,
        None => return None,
    };
    moment.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

fn day(text: &str) -> Option<Date> {
    let mut parts = text.split(['-', '/']);
    let year = number(parts.next()?, 4)?;
    let month = parts.next().map_or(Some(1), |part| number(part, 2))?;
    let day = parts.next().map_or(Some(1), |part| number(part, 2))?;
    if parts.next().is_some() {
        return None;
    }
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

fn number(digits: &str, most: usize) -> Option<i16> {
    let is_number = digits.len() <= most && digits.bytes().all(|b| b.is_ascii_digit());
    // A year has all its digits: `after:24` is a day of this month to some and 2024 to others.
    if is_number && (most < 4 || digits.len() == 4) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_months_days_and_instants_are_dates() {
        fn shown(text: &str) -> Option<String> {
            parse(text).map(|time| time.to_string())
        }

        assert_eq!(shown("2024").as_deref(), Some("2024-01-01T00:00:00Z"));
        assert_eq!(shown("2024-02").as_deref(), Some("2024-02-01T00:00:00Z"));
        assert_eq!(shown("2024/2/1").as_deref(), Some("2024-02-01T00:00:00Z"));
        assert_eq!(shown("2024-02-01T10:00").as_deref(), Some("2024-02-01T10:00:00Z"));
        assert_eq!(shown("2024-02-01T10:00:00+02:00").as_deref(), Some("2024-02-01T08:00:00Z"));
    }

    #[test]
    fn invalid_date_is_none() {
        for text in ["", "yesterday", "24", "2024-13", "2024-02-30", "2024-1-1-1", "-2024", "99999", "T"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
