//! Sizes and durations as people write them. A unit is always required: nobody should have to guess what `60` means.

use std::time::Duration;

use engine::mailboxes::Backfill;

pub const SIZE_UNITS: &str = "B, KB, MB, GB, KiB, MiB or GiB";
pub const DURATION_UNITS: &str = "ms, s, m, h or d";

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadQuantity {
    /// A number and nothing else.
    NoUnit,
    /// Right in form, and more than we can count.
    TooLarge,
    NotOne,
}

/// Bytes from "50 MB", "50MiB" or "4 kb".
pub fn parse_size(text: &str) -> Result<u64, BadQuantity> {
    let (number, unit) = leading_number(text.trim())?;
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" => return Err(BadQuantity::NoUnit),
        "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(BadQuantity::NotOne),
    };
    number.checked_mul(unit).ok_or(BadQuantity::TooLarge)
}

/// A duration from "500ms", "60s", "5 m", "1h30m" or "90d": numbers with units, largest unit first.
/// `all`, `none`, or a duration.
pub fn parse_backfill(text: &str) -> Option<Backfill> {
    match text.trim() {
        "all" => Some(Backfill::All),
        "none" => Some(Backfill::None),
        text => parse_duration(text).ok().map(Backfill::Last),
    }
}

pub fn parse_duration(text: &str) -> Result<Duration, BadQuantity> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    loop {
        let (number, after) = leading_number(rest)?;
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match &after[..end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" if after.is_empty() => return Err(BadQuantity::NoUnit),
            _ => return Err(BadQuantity::NotOne),
        };
        if unit >= smallest {
            return Err(BadQuantity::NotOne); // "30m1h" and "5m5m" are more likely slips than wishes
        }
        smallest = unit;
        total = number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or(BadQuantity::TooLarge)?;
        rest = after[end..].trim_start();
        if rest.is_empty() {
            return Ok(Duration::from_millis(total));
        }
    }
}

fn leading_number(text: &str) -> Result<(u64, &str), BadQuantity> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Err(BadQuantity::NotOne);
    }
    let number = text[..end].parse().map_err(|_| BadQuantity::TooLarge)?;
    Ok((number, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_decimal_and_binary_units_with_or_without_a_space() {
        assert_eq!(parse_size("8 MB"), Ok(8_000_000));
        assert_eq!(parse_size("50MiB"), Ok(50 << 20));
        assert_eq!(parse_size(" 4 kb "), Ok(4000));
        assert_eq!(parse_size("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_size("0 B"), Ok(0));
    }

    #[test]
    fn a_size_without_a_unit_is_refused_as_such() {
        assert_eq!(parse_size("50"), Err(BadQuantity::NoUnit));
        assert_eq!(parse_size(" 50 "), Err(BadQuantity::NoUnit));
    }

    #[test]
    fn other_texts_are_not_sizes() {
        for text in ["", "MB", "5 bananas", "-5 MB", "1.5 MB", "5 M B", "٥ MB"] {
            assert_eq!(parse_size(text), Err(BadQuantity::NotOne), "{text}");
        }
    }

    #[test]
    fn quantities_beyond_counting_are_too_large() {
        assert_eq!(parse_size("99999999999999999999 B"), Err(BadQuantity::TooLarge));
        assert_eq!(parse_size("99999999999 GiB"), Err(BadQuantity::TooLarge));
        assert_eq!(parse_duration("999999999999999d"), Err(BadQuantity::TooLarge));
    }

    #[test]
    fn durations_add_up_from_the_largest_unit_down() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_duration("5 m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("1h 30m 5s"), Ok(Duration::from_secs(5405)));
        assert_eq!(parse_duration("90d"), Ok(Duration::from_secs(90 * 86_400)));
    }

    #[test]
    fn a_duration_without_a_unit_is_refused_as_such() {
        assert_eq!(parse_duration("60"), Err(BadQuantity::NoUnit));
        assert_eq!(parse_duration("1h30"), Err(BadQuantity::NoUnit));
    }

    #[test]
    fn other_texts_are_not_durations() {
        for text in ["", "m", "5 years", "30m1h", "5m5m", "-1s", "1.5h", "5m,3s", "5é"] {
            assert_eq!(parse_duration(text), Err(BadQuantity::NotOne), "{text}");
        }
    }
}
