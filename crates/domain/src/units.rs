//! Parses sizes and durations with units. A unit is always required, so that `60` cannot be misread.

use std::time::Duration;

pub const SIZE_UNITS: &str = "B, KB, MB, GB, KiB, MiB or GiB";
pub const DURATION_UNITS: &str = "ms, s, m, h or d";

/// Why a text is not a size or duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    /// A number without a unit.
    NoUnit,
    /// Well-formed, but out of range.
    TooLarge,
    Malformed,
}

/// Parses a size such as "50 MB", "50MiB" or "4 kb" into bytes.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = leading_number(text.trim())?;
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" => return Err(QuantityError::NoUnit),
        "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(QuantityError::Malformed),
    };
    number.checked_mul(unit).ok_or(QuantityError::TooLarge)
}

/// Parses a duration such as "500ms", "60s", "5 m", "1h30m" or "90d": numbers with units, largest unit first.
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
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
            "" if after.is_empty() => return Err(QuantityError::NoUnit),
            _ => return Err(QuantityError::Malformed),
        };
        if unit >= smallest {
            return Err(QuantityError::Malformed); // "30m1h" and "5m5m" are more likely typing errors
        }
        smallest = unit;
        total = number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or(QuantityError::TooLarge)?;
        rest = after[end..].trim_start();
        if rest.is_empty() {
            return Ok(Duration::from_millis(total));
        }
    }
}

fn leading_number(text: &str) -> Result<(u64, &str), QuantityError> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 {
        return Err(QuantityError::Malformed);
    }
    let number = text[..end].parse().map_err(|_| QuantityError::TooLarge)?;
    Ok((number, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_or_binary_units() {
        assert_eq!(parse_size("8 MB"), Ok(8_000_000));
        assert_eq!(parse_size("50MiB"), Ok(50 << 20));
        assert_eq!(parse_size(" 4 kb "), Ok(4000));
        assert_eq!(parse_size("1 GiB"), Ok(1 << 30));
        assert_eq!(parse_size("0 B"), Ok(0));
    }

    #[test]
    fn size_without_a_unit_is_refused() {
        assert_eq!(parse_size("50"), Err(QuantityError::NoUnit));
        assert_eq!(parse_size(" 50 "), Err(QuantityError::NoUnit));
    }

    #[test]
    fn malformed_sizes_are_refused() {
        for text in ["", "MB", "5 bananas", "-5 MB", "1.5 MB", "5 M B", "٥ MB"] {
            assert_eq!(parse_size(text), Err(QuantityError::Malformed), "{text}");
        }
    }

    #[test]
    fn overflowing_quantities_are_too_large() {
        assert_eq!(parse_size("99999999999999999999 B"), Err(QuantityError::TooLarge));
        assert_eq!(parse_size("99999999999 GiB"), Err(QuantityError::TooLarge));
        assert_eq!(parse_duration("999999999999999d"), Err(QuantityError::TooLarge));
    }

    #[test]
    fn durations_add_up_from_the_largest_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_duration("5 m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("1h 30m 5s"), Ok(Duration::from_secs(5405)));
        assert_eq!(parse_duration("90d"), Ok(Duration::from_secs(90 * 86_400)));
    }

    #[test]
    fn duration_without_a_unit_is_refused() {
        assert_eq!(parse_duration("60"), Err(QuantityError::NoUnit));
        assert_eq!(parse_duration("1h30"), Err(QuantityError::NoUnit));
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in ["", "m", "5 years", "30m1h", "5m5m", "-1s", "1.5h", "5m,3s", "5é"] {
            assert_eq!(parse_duration(text), Err(QuantityError::Malformed), "{text}");
        }
    }
}
