//! Date formats of mail.

use jiff::Timestamp;
use jiff::civil::{DateTime, Weekday};
use jiff::tz::Offset;

use super::lexicon::Language;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns the UTC offset of the language's home. Fixed, so that no time-zone database is needed.
pub fn utc_offset_hours(language: Language) -> i8 {
    match language {
        Language::English => 0,
        Language::German | Language::French | Language::Spanish | Language::Polish => 1,
        Language::Greek => 2,
        Language::Russian | Language::Arabic => 3,
        Language::Chinese => 8,
        Language::Japanese => 9,
    }
}

/// Formats as `Tue, 05 Mar 2024 14:22:07 +0100`.
pub fn rfc5322(at: Timestamp, offset_hours: i8) -> String {
    let civil = civil(at, offset_hours);
    let sign = if offset_hours < 0 { '-' } else { '+' };
    format!(
        "{}, {:02} {} {} {:02}:{:02}:{:02} {sign}{:02}00",
        weekday(civil),
        civil.day(),
        month(civil),
        civil.year(),
        civil.hour(),
        civil.minute(),
        civil.second(),
        offset_hours.unsigned_abs(),
    )
}

/// Formats as `Tue Mar  5 13:22:07 2024`, in UTC, for the From_ line of an mbox.
pub fn ctime(at: Timestamp) -> String {
    let civil = civil(at, 0);
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {}",
        weekday(civil),
        month(civil),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second(),
        civil.year(),
    )
}

/// Formats as clients do above quoted text.
pub fn written(at: Timestamp, language: Language) -> String {
    let civil = civil(at, utc_offset_hours(language));
    let (year, day, hour, minute) = (civil.year(), civil.day(), civil.hour(), civil.minute());
    match language {
        Language::English => format!("{day} {} {year} at {hour:02}:{minute:02}", month(civil)),
        Language::French | Language::Spanish | Language::Arabic => {
            format!("{day:02}/{:02}/{year} {hour:02}:{minute:02}", civil.month())
        }
        Language::Chinese | Language::Japanese => {
            format!("{year}年{}月{day}日 {hour:02}:{minute:02}", civil.month())
        }
        _ => format!("{day:02}.{:02}.{year} {hour:02}:{minute:02}", civil.month()),
    }
}

/// Formats as `20240305T132207Z`.
pub fn ics(at: Timestamp) -> String {
    let civil = civil(at, 0);
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        civil.year(),
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    )
}

fn civil(at: Timestamp, offset_hours: i8) -> DateTime {
    Offset::constant(offset_hours).to_datetime(at)
}

fn month(civil: DateTime) -> &'static str {
    MONTHS[civil.month() as usize - 1]
}

fn weekday(civil: DateTime) -> &'static str {
    match civil.weekday() {
        Weekday::Monday => "Mon",
        Weekday::Tuesday => "Tue",
        Weekday::Wednesday => "Wed",
        Weekday::Thursday => "Thu",
        Weekday::Friday => "Fri",
        Weekday::Saturday => "Sat",
        Weekday::Sunday => "Sun",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_use_the_senders_offset() {
        let at: Timestamp = "2024-03-05T23:22:07Z".parse().unwrap();

        assert_eq!(rfc5322(at, 1), "Wed, 06 Mar 2024 00:22:07 +0100");
        assert_eq!(ctime(at), "Tue Mar  5 23:22:07 2024");
        assert_eq!(written(at, Language::Japanese), "2024年3月6日 08:22");
        assert_eq!(ics(at), "20240305T232207Z");
    }
}
