//! Command kinds of the simulated IMAP server and the faults that can be injected there.

use serde::{Deserialize, Serialize};

use crate::faults::{self, FaultKind, routes};

routes! {
    /// The kinds of IMAP command, by the names that faults and the request log use.
    ImapRoute {
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
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ImapFaultKind {
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
    /// The connection closes without a response.
    Cut,
    /// The connection is reset without a response.
    Reset,
    /// The connection closes in the middle of the response.
    CutBody,
    /// The body is sent in chunks of `bytes`, with a pause of `ms` before each.
    Slow { bytes: usize, ms: u64 },
    /// No response for `ms`, then BYE.
    Hang {
        #[serde(default = "faults::default_hang_ms")]
        ms: u64,
    },
    /// A line that is not IMAP.
    Garbage,
    /// Responses, codes and data that no document names come before the completion.
    UnknownResponses,
}

fn scripted() -> String {
    "Scripted".to_owned()
}

impl FaultKind for ImapFaultKind {
    type Route = ImapRoute;

    fn replaces_response(&self) -> bool {
        !matches!(self, Self::CutBody | Self::Slow { .. } | Self::UnknownResponses)
    }

    fn transient() -> Vec<Self> {
        vec![
            Self::No { code: Some("UNAVAILABLE".to_owned()), text: scripted() },
            Self::Bye { text: scripted() },
            Self::Cut,
            Self::Reset,
            Self::CutBody,
            Self::Slow { bytes: 4_000, ms: 20 },
            Self::Hang { ms: 1_500 },
            Self::Garbage,
            Self::UnknownResponses,
        ]
    }

    fn applies_to(&self, route: ImapRoute) -> bool {
        // The greeting answers no command.
        !matches!((self, route), (Self::No { .. } | Self::Bad | Self::UnknownResponses, ImapRoute::Greeting))
    }
}

pub type ImapFault = faults::FaultRule<ImapFaultKind>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::can_happen;

    #[test]
    fn faults_are_parsed_with_route_names() {
        let text = r#"{"kind":"no","code":"LIMIT","route":"login","count":2}"#;
        let read: ImapFault = serde_json::from_str(text).unwrap();

        let kind = ImapFaultKind::No { code: Some("LIMIT".to_owned()), text: "Scripted".to_owned() };
        assert_eq!(read, ImapFault { route: Some(ImapRoute::Login), count: Some(2), ..ImapFault::always(kind) });
        assert!(!can_happen(&ImapFaultKind::Bad, ImapRoute::Greeting));
    }
}
