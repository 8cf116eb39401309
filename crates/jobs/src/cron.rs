//! Cron expressions of five fields, evaluated in a time zone.
//!
//! `minute hour day month weekday`, each a list of numbers, names (`jan`, `mon`), ranges and steps; `@hourly`, `@daily`
//! and the like. As in other crons, a day must match the day and the weekday if one of them begins with `*`, else either.
//!
//! When clocks change: an expression with `*` for the hour follows elapsed time, so that "every five minutes" is every five
//! minutes in that night as well. Any other expression follows the wall clock: a time that is skipped fires at the end of
//! the gap, and a time that is repeated fires once, the first time.
//!
//! Written here because no crate does both: report the column of an error, and fire what a gap skips (`cronexpr` leaves it
//! out, `croner` reports no column).

use std::ops::RangeInclusive;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

/// A parsed cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: FieldValues,
    hours: FieldValues,
    days: FieldValues,
    months: FieldValues,
    weekdays: FieldValues,
}

/// The numbers that a field matches, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldValues {
    bits: u64,
    /// Whether the field begins with `*`.
    is_open: bool,
}

/// An invalid cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cron line {line:?} is wrong at column {column}: {problem}")]
pub struct CronError {
    pub line: String,
    /// From 1.
    pub column: usize,
    pub problem: String,
}

/// The definition of one of the five fields.
struct CronField {
    name: &'static str,
    least: u8,
    most: u8,
    /// Names of the numbers from `least` on.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [CronField; 5] = [
    CronField { name: "minute", least: 0, most: 59, names: &[] },
    CronField { name: "hour", least: 0, most: 23, names: &[] },
    CronField { name: "day", least: 1, most: 31, names: &[] },
    CronField { name: "month", least: 1, most: 12, names: MONTHS },
    // 7 is Sunday too.
    CronField { name: "weekday", least: 0, most: 7, names: WEEKDAYS },
];

const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The most days that each month can have.
const MAX_DAYS_OF_MONTH: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

impl CronError {
    /// Makes an error at a byte of the line.
    fn at(line: &str, at: usize, problem: String) -> Self {
        Self { line: line.to_owned(), column: line[..at].chars().count() + 1, problem }
    }
}

impl Cron {
    pub fn parse(line: &str) -> Result<Self, CronError> {
        let words = words(line);
        if let [(at, nickname)] = words[..]
            && nickname.starts_with('@')
        {
            let known = NICKNAMES.iter().find(|(name, _)| nickname.eq_ignore_ascii_case(name));
            let names: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
            return match known {
                Some((_, line)) => Self::parse(line),
                None => Err(CronError::at(line, at, format!("there is no {nickname}; there are {}", names.join(", ")))),
            };
        }
        if words.len() < FIELDS.len() {
            let missing = FIELDS[words.len()].name;
            return Err(CronError::at(
                line,
                line.len(),
                format!("the {missing} is missing; a line has minute, hour, day, month and weekday"),
            ));
        }
        if let Some((at, _)) = words.get(FIELDS.len()) {
            return Err(CronError::at(line, *at, "a line has five fields, and this is the sixth".to_owned()));
        }
        let mut weekdays = read_word(line, &words, 4)?;
        if weekdays.has(7) {
            weekdays.bits |= 1;
        }
        let cron = Self {
            minutes: read_word(line, &words, 0)?,
            hours: read_word(line, &words, 1)?,
            days: read_word(line, &words, 2)?,
            months: read_word(line, &words, 3)?,
            weekdays,
        };
        if cron.never_comes() {
            return Err(CronError::at(line, words[2].0, "none of the months has such a day".to_owned()));
        }
        Ok(cron)
    }

    /// Returns the first time after `after`, or `None` if there is none before the end of the supported range.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.hours.bits == (1 << 24) - 1 {
            self.next_by_elapsed_time(after, zone)
        } else {
            self.next_by_wall_clock(after, zone)
        }
    }

    /// Returns the next `count` times, or fewer if there are no more.
    pub fn upcoming(&self, after: Timestamp, zone: &TimeZone, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after, zone), |last| self.next_after(*last, zone)).take(count).collect()
    }

    fn next_by_wall_clock(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // A later wall time is never an earlier moment, as `moment` maps it; so the first that is late enough is the next.
        let mut wall = whole_minute(zone.to_datetime(after));
        loop {
            wall = self.first_from(wall)?;
            let at = moment(zone, wall)?;
            if at > after {
                return Some(at);
            }
            wall = wall.checked_add(1.minute()).ok()?;
        }
    }

    fn next_by_elapsed_time(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let wall = zone.to_datetime(after);
        let into_minute = wall.duration_since(whole_minute(wall));
        let mut at = after.checked_sub(into_minute).ok()?.checked_add(1.minute()).ok()?;
        loop {
            let wall = zone.to_datetime(at);
            let wanted = self.first_from(wall)?;
            if wanted == wall {
                return Some(at);
            }
            let then = at.checked_add(wanted.duration_since(wall)).ok()?;
            // If the clocks change before that, the wall clock shows something else then.
            let change = zone.following(at).next().map(|transition| transition.timestamp());
            at = change.filter(|change| *change <= then).unwrap_or(then);
        }
    }

    /// Returns the first match at this wall time or later, as if clocks never changed.
    fn first_from(&self, wall: DateTime) -> Option<DateTime> {
        let mut date = wall.date();
        let (mut hour, mut minute) = (wall.hour(), wall.minute());
        if wall.second() > 0 || wall.subsec_nanosecond() > 0 {
            return self.first_from(whole_minute(wall).checked_add(1.minute()).ok()?);
        }
        loop {
            if !self.months.has(date.month()) {
                date = date.first_of_month().checked_add(1.month()).ok()?;
            } else if let Some((hour, minute)) =
                self.matches_day(date).then(|| self.first_in_day(hour, minute)).flatten()
            {
                return Some(date.at(hour, minute, 0, 0));
            } else {
                date = date.tomorrow().ok()?;
            }
            (hour, minute) = (0, 0);
        }
    }

    fn first_in_day(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        if self.hours.has(hour)
            && let Some(minute) = self.minutes.first_in(minute..=59)
        {
            return Some((hour, minute));
        }
        Some((self.hours.first_in(hour + 1..=23)?, self.minutes.first_in(0..=59)?))
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        if self.days.is_open || self.weekdays.is_open { day && weekday } else { day || weekday }
    }

    fn never_comes(&self) -> bool {
        let needs_the_day = self.days.is_open || self.weekdays.is_open;
        let first = (1..=31).find(|day| self.days.has(*day)).unwrap_or(1);
        needs_the_day
            && !(1..=12_i8).any(|month| self.months.has(month) && MAX_DAYS_OF_MONTH[month as usize - 1] as i8 >= first)
    }
}

impl FieldValues {
    fn has(self, number: i8) -> bool {
        self.bits >> number & 1 == 1
    }

    fn first_in(self, mut numbers: RangeInclusive<i8>) -> Option<i8> {
        numbers.find(|number| self.has(*number))
    }
}

/// Returns the moment at which a wall clock shows this time: the first one if it does so twice, the end of the gap if it
/// never does.
fn moment(zone: &TimeZone, wall: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok(),
        AmbiguousOffset::Gap { after, .. } => {
            let before_the_gap = after.to_timestamp(wall).ok()?;
            zone.following(before_the_gap).next().map(|transition| transition.timestamp())
        }
    }
}

fn whole_minute(wall: DateTime) -> DateTime {
    wall.date().at(wall.hour(), wall.minute(), 0, 0)
}

/// Splits a line into words, each with the byte at which it begins.
fn words(line: &str) -> Vec<(usize, &str)> {
    line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word)).collect()
}

/// The byte within a field at which it is invalid, and the problem.
type FieldProblem = (usize, String);

/// Reads the word of a line that is its `n`th field.
fn read_word(line: &str, words: &[(usize, &str)], n: usize) -> Result<FieldValues, CronError> {
    let (at, text) = words[n];
    read_field(&FIELDS[n], text).map_err(|(offset, problem)| CronError::at(line, at + offset, problem))
}

fn read_field(field: &CronField, text: &str) -> Result<FieldValues, FieldProblem> {
    let mut set = FieldValues { bits: 0, is_open: text.starts_with('*') };
    let mut at = 0;
    for item in text.split(',') {
        set.bits |= read_item(field, item).map_err(|(offset, problem)| (at + offset, problem))?;
        at += item.len() + 1;
    }
    Ok(set)
}

/// Reads `*`, `5`, `mon` or `1-5`, each perhaps with a step such as `/2`.
fn read_item(field: &CronField, item: &str) -> Result<u64, FieldProblem> {
    let (range, step) = item.split_once('/').map_or((item, None), |(range, step)| (range, Some(step)));
    let step_by = match step {
        None => 1,
        Some(step) => {
            let number = step.parse::<u8>().ok().filter(|number| *number > 0 && is_digits(step));
            number.ok_or_else(|| {
                (range.len() + 1, format!("{step:?} is no step; write a number from 1 on after the /"))
            })?
        }
    };
    let (first, last) = match range.split_once('-') {
        _ if range == "*" => (field.least, if field.most == 7 { 6 } else { field.most }),
        Some((from, to)) => {
            let first = read_number(field, from)?;
            let offset = from.len() + 1;
            let last = read_number(field, to).map_err(|(at, problem)| (offset + at, problem))?;
            // A week may be written from Monday to Sunday.
            let last = if field.most == 7 && last == 0 && first > 0 { 7 } else { last };
            if last < first {
                return Err((offset, format!("the range ends before it begins; {to} is less than {from}")));
            }
            (first, last)
        }
        None => {
            let first = read_number(field, range)?;
            // `5/15` begins there and goes on to the end.
            (first, if step.is_some() { field.most } else { first })
        }
    };
    Ok((first..=last).step_by(usize::from(step_by)).fold(0, |bits, number| bits | 1 << number))
}

fn read_number(field: &CronField, text: &str) -> Result<u8, FieldProblem> {
    let CronField { name, least, most, names } = field;
    if let Some(place) = names.iter().position(|known| text.eq_ignore_ascii_case(known)) {
        return Ok(least + place as u8);
    }
    let or_names = match names {
        [first, .., last] => format!(", or {first} to {last}"),
        _ => String::new(),
    };
    let number = text.parse::<u8>().ok().filter(|number| is_digits(text) && (*least..=*most).contains(number));
    number.ok_or_else(|| (0, format!("{text:?} is no {name}; write {least} to {most}{or_names}")))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone(name: &str) -> TimeZone {
        TimeZone::get(name).unwrap()
    }

    /// Returns the next times as a wall clock shows them, with the offset.
    fn times(line: &str, after: &str, zone_name: &str, count: usize) -> Vec<String> {
        let (cron, zone) = (Cron::parse(line).unwrap(), zone(zone_name));
        let upcoming = cron.upcoming(after.parse().unwrap(), &zone, count);
        upcoming.iter().map(|at| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M %:z").to_string()).collect()
    }

    #[test]
    fn lists_ranges_steps_and_names_are_understood() {
        fn next(line: &str) -> Vec<String> {
            times(line, "2026-03-10T10:07:30Z", "UTC", 3)
        }
        fn utc(times: [&str; 3]) -> [String; 3] {
            times.map(|time| format!("2026-{time} +00:00"))
        }

        assert_eq!(next("*/20 * * * *"), utc(["03-10 10:20", "03-10 10:40", "03-10 11:00"]));
        assert_eq!(next("5/25 9-17/4 * * *"), utc(["03-10 13:05", "03-10 13:30", "03-10 13:55"]));
        assert_eq!(next("0 0 1,15 * *"), utc(["03-15 00:00", "04-01 00:00", "04-15 00:00"]));
        assert_eq!(next("30 6 * MAY-jun Mon"), utc(["05-04 06:30", "05-11 06:30", "05-18 06:30"]));
        assert_eq!(next("0 12 * * fri-sun"), utc(["03-13 12:00", "03-14 12:00", "03-15 12:00"]));
        assert_eq!(next("0 12 * * 7"), next("0 12 * * 0"));
        assert_eq!(next("@daily"), utc(["03-11 00:00", "03-12 00:00", "03-13 00:00"]));
        assert_eq!(next("@hourly"), utc(["03-10 11:00", "03-10 12:00", "03-10 13:00"]));
        assert_eq!(next("  7   10 10 3 *  ")[0], "2027-03-10 10:07 +00:00");
    }

    #[test]
    fn day_or_weekday_matches_unless_one_is_open() {
        fn next(line: &str) -> Vec<String> {
            times(line, "2026-03-01T12:00:00Z", "UTC", 3)
        }

        assert_eq!(
            next("0 0 13 * 5"),
            ["2026-03-06 00:00 +00:00", "2026-03-13 00:00 +00:00", "2026-03-20 00:00 +00:00"]
        );
        assert_eq!(
            next("0 0 13 * *"),
            ["2026-03-13 00:00 +00:00", "2026-04-13 00:00 +00:00", "2026-05-13 00:00 +00:00"]
        );
        assert_eq!(next("0 0 */10 * 6")[0], "2026-03-21 00:00 +00:00");
    }

    #[test]
    fn leap_day_is_found() {
        assert_eq!(times("0 0 29 2 *", "2097-01-01T00:00:00Z", "UTC", 1), ["2104-02-29 00:00 +00:00"]);
    }

    #[test]
    fn errors_name_column_and_problem() {
        for (line, column, says) in [
            ("", 1, "the minute is missing"),
            ("* * *", 6, "the month is missing"),
            ("* * * * * *", 11, "the sixth"),
            ("60 * * * *", 1, "\"60\" is no minute; write 0 to 59"),
            ("0  24 * * *", 4, "\"24\" is no hour"),
            ("0 1,2,x * * *", 7, "\"x\" is no hour"),
            ("0 0 0 * *", 5, "write 1 to 31"),
            ("0 0 * foo *", 7, "or jan to dec"),
            ("0 0 * * mon-funday", 13, "\"funday\" is no weekday"),
            ("0 9-5 * * *", 5, "ends before it begins"),
            ("*/0 * * * *", 3, "is no step"),
            ("*/ * * * *", 3, "is no step"),
            ("+5 * * * *", 1, "is no minute"),
            ("0 0 30 2 *", 5, "none of the months has such a day"),
            ("0 0 31 4,6 *", 5, "none of the months has such a day"),
            ("@often", 1, "there is no @often; there are @yearly"),
            ("0 0 ü * *", 5, "\"ü\" is no day"),
        ] {
            let error = Cron::parse(line).unwrap_err();
            assert_eq!(error.column, column, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn skipped_time_fires_at_the_end_of_the_gap() {
        let night = "2026-03-28T12:00:00Z"; // 02:00 becomes 03:00 on the 29th
        assert_eq!(
            times("30 2 * * *", night, "Europe/Berlin", 2),
            ["2026-03-29 03:00 +02:00", "2026-03-30 02:30 +02:00"]
        );
        // Several in the gap are one moment.
        assert_eq!(
            times("0,30 2,3 * * *", night, "Europe/Berlin", 3),
            ["2026-03-29 03:00 +02:00", "2026-03-29 03:30 +02:00", "2026-03-30 02:00 +02:00"]
        );
        // The clocks of Lord Howe Island go half an hour forward.
        assert_eq!(times("15 2 * * *", "2026-10-03T12:00:00Z", "Australia/Lord_Howe", 1), ["2026-10-04 02:30 +11:00"]);
    }

    #[test]
    fn repeated_time_fires_once() {
        let night = "2026-10-24T12:00:00Z"; // 03:00 becomes 02:00 on the 25th
        assert_eq!(
            times("30 2 * * *", night, "Europe/Berlin", 2),
            ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]
        );
        // Asked in the second pass.
        assert_eq!(times("30 2 * * *", "2026-10-25T01:10:00Z", "Europe/Berlin", 1), ["2026-10-26 02:30 +01:00"]);
    }

    #[test]
    fn intervals_stay_even_when_clocks_change() {
        for night in ["2026-03-29T00:30:00Z", "2026-10-25T00:30:00Z"] {
            let (cron, zone) = (Cron::parse("*/15 * * * *").unwrap(), zone("Europe/Berlin"));
            let times = cron.upcoming(night.parse().unwrap(), &zone, 12);
            let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).collect();
            assert_eq!(gaps, [900; 11], "{times:?}");
        }
    }

    fn item(least: u8, most: u8) -> impl Strategy<Value = String> {
        prop_oneof![
            3 => Just("*".to_owned()),
            2 => (least..=most).prop_map(|number| number.to_string()),
            2 => (least..=most, least..=most).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            1 => (1..=most.max(2)).prop_map(|step| format!("*/{step}")),
            1 => (least..=most, least..=most).prop_map(|(a, b)| format!("{a},{b}")),
        ]
    }

    fn line() -> impl Strategy<Value = String> {
        // Days that every month has, so that each line comes soon.
        (item(0, 59), item(0, 23), item(1, 28), item(1, 12), item(0, 6))
            .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"))
    }

    fn zone_name() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
    }

    /// Returns whether a wall time matches the expression, read in the plainest way.
    fn matches_wall_time(cron: &Cron, wall: DateTime) -> bool {
        cron.minutes.has(wall.minute())
            && cron.hours.has(wall.hour())
            && cron.months.has(wall.month())
            && cron.matches_day(wall.date())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn parsing_never_panics(line in "[-*/,@0-9a-z ü]{0,30}", seconds in 0_i64..4_000_000_000) {
            if let Ok(cron) = Cron::parse(&line) {
                cron.next_after(Timestamp::from_second(seconds).unwrap(), &zone("Europe/Berlin"));
            }
        }

        #[test]
        fn times_increase_and_match(line in line(), seconds in 1_500_000_000_i64..2_000_000_000, zone_name in zone_name()) {
            let (cron, zone) = (Cron::parse(&line).unwrap(), zone(zone_name));
            let mut last = Timestamp::from_second(seconds).unwrap();
            for at in cron.upcoming(last, &zone, 5) {
                prop_assert!(at > last);
                let is_after_gap = zone.following(at - 1.second()).next().is_some_and(|change| change.timestamp() == at);
                prop_assert!(matches_wall_time(&cron, zone.to_datetime(at)) || is_after_gap, "{line} at {at} in {zone_name}");
                last = at;
            }
        }

        #[test]
        fn no_matching_minute_is_left_out(line in line(), seconds in 1_700_000_000_i64..1_800_000_000, zone_name in zone_name()) {
            let (cron, zone) = (Cron::parse(&line).unwrap(), zone(zone_name));
            let after = Timestamp::from_second(seconds).unwrap();
            let next = cron.next_after(after, &zone);
            // Two days, minute by minute.
            let minutes = (1..2880).map(|n| after + (60 * n).seconds());
            let whole = minutes.map(|at| at - i64::from(zone.to_datetime(at).second()).seconds());
            let first = whole.filter(|at| *at > after).find(|at| {
                let wall = zone.to_datetime(*at);
                // The second pass of a repeated hour counts only for lines that follow time as it passes.
                matches_wall_time(&cron, wall) && (cron.hours.bits == (1 << 24) - 1 || moment(&zone, wall) == Some(*at))
            });
            if let Some(first) = first {
                prop_assert!(next.is_some_and(|next| next <= first), "{line} in {zone_name} after {after}: {next:?}, not {first}");
            }
        }

        #[test]
        fn next_time_is_the_same_from_anywhere_before(line in line(), seconds in 1_500_000_000_i64..2_000_000_000, part in 0.0_f64..1.0) {
            let (cron, zone) = (Cron::parse(&line).unwrap(), zone("Europe/Berlin"));
            let after = Timestamp::from_second(seconds).unwrap();
            if let Some(next) = cron.next_after(after, &zone) {
                let between = after + ((next.duration_since(after).as_secs() as f64 * part) as i64).seconds();
                if between < next {
                    prop_assert_eq!(cron.next_after(between, &zone), Some(next));
                }
            }
        }
    }
}
