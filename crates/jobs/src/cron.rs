//! Cron lines: five fields, in a time zone.
//!
//! `minute hour day month weekday`, each a list of numbers, names (`jan`, `mon`), ranges and steps; `@hourly`, `@daily`
//! and the like. As in other crons, a day must match the day and the weekday if one of them begins with `*`, else either.
//!
//! When clocks change: a line with `*` for the hour follows time as it passes, so that "every five minutes" is every five
//! minutes in that night as well. Any other line follows the clock on the wall: a time that is skipped comes at the first
//! moment after the gap, and a time that is repeated comes once, the first time.
//!
//! Written here because none of the crates for it does both: say where a line is wrong, and run what a gap skips
//! (`cronexpr` leaves it out, `croner` does not tell the place).

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

/// A line that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
}

/// Which numbers of a field match, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set {
    bits: u64,
    /// It begins with `*`.
    is_open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cron line {line:?} is wrong at column {column}: {problem}")]
pub struct CronError {
    pub line: String,
    /// From 1.
    pub column: usize,
    pub problem: String,
}

struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    /// From the least number on.
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[] },
    Field { name: "hour", least: 0, most: 23, names: &[] },
    Field { name: "day", least: 1, most: 31, names: &[] },
    Field { name: "month", least: 1, most: 12, names: MONTHS },
    // 7 is Sunday too.
    Field { name: "weekday", least: 0, most: 7, names: WEEKDAYS },
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

/// The most days that a month can have.
const DAYS_IN: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

impl Cron {
    pub fn parse(line: &str) -> Result<Self, CronError> {
        let wrong = |at: usize, problem: String| CronError {
            line: line.to_owned(),
            column: line[..at].chars().count() + 1,
            problem,
        };
        let words = words(line);
        if let [(at, nickname)] = words[..]
            && nickname.starts_with('@')
        {
            let known = NICKNAMES.iter().find(|(name, _)| nickname.eq_ignore_ascii_case(name));
            let names: Vec<&str> = NICKNAMES.iter().map(|(name, _)| *name).collect();
            let unknown = || wrong(at, format!("there is no {nickname}; there are {}", names.join(", ")));
            return known.map_or_else(|| Err(unknown()), |(_, line)| Self::parse(line));
        }
        if words.len() < FIELDS.len() {
            let missing = FIELDS[words.len()].name;
            return Err(wrong(
                line.len(),
                format!("the {missing} is missing; a line has minute, hour, day, month and weekday"),
            ));
        }
        if let Some((at, _)) = words.get(FIELDS.len()) {
            return Err(wrong(*at, "a line has five fields, and this is the sixth".to_owned()));
        }
        let field = |n: usize| {
            read_field(&FIELDS[n], words[n].1).map_err(|(offset, problem)| wrong(words[n].0 + offset, problem))
        };
        let mut weekdays = field(4)?;
        if weekdays.has(7) {
            weekdays.bits |= 1;
        }
        let cron = Self { minutes: field(0)?, hours: field(1)?, days: field(2)?, months: field(3)?, weekdays };
        if cron.never_comes() {
            return Err(wrong(words[2].0, "none of the months has such a day".to_owned()));
        }
        Ok(cron)
    }

    /// The first time after `after`. `None`: not before time itself ends.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.hours.bits == (1 << 24) - 1 {
            self.next_passing(after, zone)
        } else {
            self.next_on_the_wall(after, zone)
        }
    }

    /// The next times, at most `count` of them.
    pub fn upcoming(&self, after: Timestamp, zone: &TimeZone, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next_after(after, zone), |last| self.next_after(*last, zone)).take(count).collect()
    }

    fn next_on_the_wall(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // Later on the wall is never earlier in time, as `moment` tells it; so the first that is late enough is the next.
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

    fn next_passing(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
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
            // If the clocks change before that, the wall shows something else then.
            let change = zone.following(at).next().map(|transition| transition.timestamp());
            at = change.filter(|change| *change <= then).unwrap_or(then);
        }
    }

    /// The first match at this time or later, as if clocks never changed.
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
        let from = |set: Set, least: i8, most: i8| (least..=most).find(|number| set.has(*number));
        if self.hours.has(hour)
            && let Some(minute) = from(self.minutes, minute, 59)
        {
            return Some((hour, minute));
        }
        Some((from(self.hours, hour + 1, 23)?, from(self.minutes, 0, 59)?))
    }

    fn matches_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        if self.days.is_open || self.weekdays.is_open { day && weekday } else { day || weekday }
    }

    fn never_comes(&self) -> bool {
        let needs_the_day = self.days.is_open || self.weekdays.is_open;
        let first = (1..=31).find(|day| self.days.has(*day)).unwrap_or(1);
        let has_it = |month: i8| self.months.has(month) && i16::from(DAYS_IN[month as usize - 1]) >= i16::from(first);
        needs_the_day && !(1..=12).any(has_it)
    }
}

impl Set {
    fn has(self, number: i8) -> bool {
        self.bits >> number & 1 == 1
    }
}

/// When a wall clock shows this time: the first time, if it does twice; else the end of the gap that it is in.
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

/// Words with the place where each begins.
fn words(line: &str) -> Vec<(usize, &str)> {
    let place = |word: &str| word.as_ptr() as usize - line.as_ptr() as usize;
    line.split_whitespace().map(|word| (place(word), word)).collect()
}

type Wrong = (usize, String);

fn read_field(field: &Field, text: &str) -> Result<Set, Wrong> {
    let mut set = Set { bits: 0, is_open: text.starts_with('*') };
    let mut at = 0;
    for item in text.split(',') {
        set.bits |= read_item(field, item).map_err(|(offset, problem)| (at + offset, problem))?;
        at += item.len() + 1;
    }
    Ok(set)
}

/// `*`, `5`, `mon`, `1-5`, and each with `/2`.
fn read_item(field: &Field, item: &str) -> Result<u64, Wrong> {
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
            // A week may be told from Monday to Sunday.
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

fn read_number(field: &Field, text: &str) -> Result<u8, Wrong> {
    let Field { name, least, most, names } = field;
    if let Some(place) = names.iter().position(|known| text.eq_ignore_ascii_case(known)) {
        return Ok(least + place as u8);
    }
    let or_names = match names {
        [first, .., last] => format!(", or {first} to {last}"),
        _ => String::new(),
    };
    let wanted = || format!("{text:?} is no {name}; write {least} to {most}{or_names}");
    let number = text.parse::<u8>().ok().filter(|number| is_digits(text) && (*least..=*most).contains(number));
    number.ok_or_else(|| (0, wanted()))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
