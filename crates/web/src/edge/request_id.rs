//! Request ids: taken from `X-Request-Id` or generated, and repeated in logs, responses and the audit log.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use domain::Clock;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longer than common ids, short enough for a log line.
const MAX_REQUEST_ID_BYTES: usize = 128;

/// Id that the client sent, or one generated here. Visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    pub(super) fn of(headers: &HeaderMap, clock: &dyn Clock) -> Self {
        let given = headers.get(X_REQUEST_ID).and_then(|value| value.to_str().ok());
        let given = given
            .filter(|id| (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()));
        Self(match given {
            Some(id) => id.into(),
            None => domain::RequestId::new(clock).to_string().into(),
        })
    }

    pub(super) fn insert_into(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(&self.0) {
            headers.insert(X_REQUEST_ID, value);
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
    fn invalid_request_ids_are_replaced() {
        let of = |given: &[u8]| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_bytes(given).unwrap())]);
            RequestId::of(&headers, &SystemClock).to_string()
        };
        for sane in ["7", "a-b_c:d/e", &"x".repeat(128)] {
            assert_eq!(of(sane.as_bytes()), sane);
        }
        for odd in [b"".as_slice(), b"a b", b"a\tb", "ü".as_bytes(), &[b'x'; 129]] {
            assert_eq!(of(odd).len(), 36, "{odd:?}");
        }
        assert_ne!(of(b""), of(b""), "generated ids are unique");
    }
}
