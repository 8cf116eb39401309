//! What the server does wrong, when it is told to.

use serde::{Deserialize, Serialize};

use crate::faults::{self, Failing, routes};

routes! {
    Greeting = "greeting",
    Login = "login",
    Other = "other",
    List = "list",
    Status = "status",
    Select = "select",
    Fetch = "fetch",
    Body = "body",
    Search = "search",
    Change = "change",
    Idle = "idle",
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// NO, with a code if one is given.
    No {
        #[serde(default)]
        code: Option<String>,
        #[serde(default = "scripted")]
        text: String,
    },
    /// BAD.
    Bad,
    /// BYE, and the connection ends.
    Bye {
        #[serde(default = "scripted")]
        text: String,
    },
    /// The connection ends without an answer.
    Cut,
    /// The same, with a reset.
    Reset,
    /// The connection ends in the middle of the answer.
    CutBody,
    /// So many bytes, then so many milliseconds of nothing, and so on.
    Slow { bytes: usize, ms: u64 },
    /// Nothing for so long, then BYE.
    Hang {
        #[serde(default = "an_hour")]
        ms: u64,
    },
    /// Something that is no IMAP.
    Garbage,
}

fn scripted() -> String {
    "Scripted".to_owned()
}

fn an_hour() -> u64 {
    3_600_000
}

impl Failing for Kind {
    type Route = Route;

    fn is_answer(&self) -> bool {
        !matches!(self, Self::CutBody | Self::Slow { .. })
    }

    fn passing() -> Vec<Self> {
        vec![
            Self::No { code: Some("UNAVAILABLE".to_owned()), text: scripted() },
            Self::Bye { text: scripted() },
            Self::Cut,
            Self::Reset,
            Self::CutBody,
            Self::Slow { bytes: 4_000, ms: 20 },
            Self::Hang { ms: 1_500 },
            Self::Garbage,
        ]
    }

    fn concerns(&self, route: Route) -> bool {
        // Nobody has asked yet.
        !matches!((self, route), (Self::No { .. } | Self::Bad, Route::Greeting))
    }
}

/// Whether this can go wrong there at all.
pub fn can_happen(kind: &Kind, route: Route) -> bool {
    kind.concerns(route)
}

pub type Fault = faults::Fault<Kind>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_json_by_the_names_of_routes() {
        let text = r#"{"kind":"no","code":"LIMIT","route":"login","count":2}"#;
        let read: Fault = serde_json::from_str(text).unwrap();

        let kind = Kind::No { code: Some("LIMIT".to_owned()), text: "Scripted".to_owned() };
        assert_eq!(read, Fault { route: Some(Route::Login), count: Some(2), ..Fault::always(kind) });
        assert!(!can_happen(&Kind::Bad, Route::Greeting));
    }
}
