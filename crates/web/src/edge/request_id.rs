//! What a request is called, here and wherever else it is told of.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::Clock;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Longer than anybody's ids, shorter than a line of a log.
const LONGEST: usize = 128;

/// The client's own name for it, or one that was made here. Visible ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    pub(super) fn of(headers: &HeaderMap, clock: &dyn Clock) -> Self {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok());
        let given = given.filter(|id| (1..=LONGEST).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()));
        Self(match given {
            Some(id) => id.into(),
            None => domain::RequestId::new(clock).to_string().into(),
        })
    }

    pub(super) fn put(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&self.0) {
            headers.insert(HEADER, value);
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::SystemClock;

    #[test]
    fn a_sane_id_is_kept_and_any_other_is_replaced() {
        let of = |given: &[u8]| {
            let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_bytes(given).unwrap())]);
            RequestId::of(&headers, &SystemClock).to_string()
        };
        for sane in ["7", "a-b_c:d/e", &"x".repeat(128)] {
            assert_eq!(of(sane.as_bytes()), sane);
        }
        for odd in [b"".as_slice(), b"a b", b"a\tb", "ü".as_bytes(), &[b'x'; 129]] {
            assert_eq!(of(odd).len(), 36, "{odd:?}");
        }
        assert_ne!(of(b""), of(b""), "no two requests have one name");
    }
}
