//! Reads `Retry-After` and `Date`.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// Reads a `Retry-After` of seconds or of a date; a date is relative to the response's own `Date`.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // A date in the past means at once.
    Some(Duration::try_from(parse_http_date(value)?.duration_since(date(headers)?)).unwrap_or_default())
}

pub(super) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    parse_http_date(headers.get(DATE)?.to_str().ok()?)
}

fn parse_http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(reqwest::header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_servers_clock() {
        let date = (DATE, "Sun, 01 Feb 2026 12:00:00 GMT");

        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, " 7")])), Some(Duration::from_secs(7)));
        let later = (RETRY_AFTER, "Sun, 01 Feb 2026 12:01:30 GMT");
        assert_eq!(retry_after(&headers(&[later.clone(), date.clone()])), Some(Duration::from_secs(90)));
        assert_eq!(retry_after(&headers(&[later])), None);
        let before = (RETRY_AFTER, "Sun, 01 Feb 2026 11:00:00 GMT");
        assert_eq!(retry_after(&headers(&[before, date])), Some(Duration::ZERO));
        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, "soon")])), None);
    }
}
