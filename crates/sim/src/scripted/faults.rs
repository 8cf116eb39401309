//! What the provider does wrong, when it is told to.

use serde::{Deserialize, Serialize};

use super::account::MessageId;
use crate::faults::{self, Failing};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    Changes,
    History,
    List,
    Fetch,
    Check,
}

impl Route {
    pub const ALL: [Self; 5] = [Self::Changes, Self::History, Self::List, Self::Fetch, Self::Check];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::History => "history",
            Self::List => "list",
            Self::Fetch => "fetch",
            Self::Check => "check",
        }
    }

    fn is_page(self) -> bool {
        matches!(self, Self::Changes | Self::History | Self::List)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// 429, with a Retry-After in seconds if one is given.
    Throttled { retry_after: Option<u64> },
    /// 503.
    Unavailable,
    /// 401, whatever the token.
    Unauthorized,
    /// Nothing for so long, then 503.
    Hang {
        #[serde(default = "an_hour")]
        ms: u64,
    },
    /// The connection ends without an answer.
    Cut,
    /// The connection ends in the middle of the answer.
    CutBody,
    /// 200, and something that is no answer.
    Garbage,
    /// A whole answer with half the JSON in it.
    TruncatedJson,
    /// A page tells again what the page before told.
    RepeatPage,
    /// A message with fewer bytes than announced. It goes on with the next message, or ends there.
    ShortMessage {
        #[serde(default)]
        goes_on: bool,
    },
    /// The first message of a fetch is not there any more.
    Gone,
    /// This message cannot be had.
    FailingMessage {
        message: MessageId,
        #[serde(default = "internal_error")]
        status: u16,
    },
    /// So many bytes, then so many milliseconds of nothing, and so on.
    Slow { bytes: usize, ms: u64 },
}

fn an_hour() -> u64 {
    3_600_000
}

fn internal_error() -> u16 {
    500
}

impl Failing for Kind {
    type Route = Route;

    fn is_answer(&self) -> bool {
        use Kind::{Cut, Garbage, Hang, Throttled, Unauthorized, Unavailable};
        matches!(self, Throttled { .. } | Unavailable | Unauthorized | Hang { .. } | Cut | Garbage)
    }

    fn concerns(&self, route: Route) -> bool {
        match self {
            Self::TruncatedJson | Self::RepeatPage => route.is_page(),
            Self::ShortMessage { .. } | Self::Gone | Self::FailingMessage { .. } => route == Route::Fetch,
            Self::CutBody | Self::Slow { .. } => route != Route::Check,
            _ => true,
        }
    }
}

pub type Fault = faults::Fault<Kind>;

pub(super) type Faults = faults::Faults<Kind>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_comes_as_often_as_it_should_and_where_it_should() {
        let faults = Faults::new(1);
        faults.add(Fault { route: Some(Route::Changes), count: Some(2), ..Fault::always(Kind::Cut) });
        faults.add(Fault { account: Some("a@x.test".into()), ..Fault::sometimes(Kind::Unavailable, 0.25) });
        let count =
            |account, route| (0..1_000).map(|_| faults.draw(account, route).len()).filter(|drawn| *drawn > 0).count();

        assert_eq!(count("b@x.test", Route::Changes), 2);
        assert_eq!(count("b@x.test", Route::Check), 0);
        assert!((200..300).contains(&count("A@x.test", Route::Check)));
    }

    #[test]
    fn faults_are_read_from_json() {
        let read: Fault = serde_json::from_str(r#"{"kind":"hang","ms":5,"probability":0.5,"route":"fetch"}"#).unwrap();

        let kind = Kind::Hang { ms: 5 };
        assert_eq!(read, Fault { route: Some(Route::Fetch), ..Fault::sometimes(kind, 0.5) });
    }
}
