//! Routes of the simulated JMAP server and the faults that can be injected there.

use serde::{Deserialize, Serialize};

use crate::faults::{self, FaultKind, ResponseDamage, routes};

routes! {
    /// The routes of a JMAP server, by the names that faults and the request log use.
    JmapRoute {
        Session = "session",
        Api = "api",
        Download = "download",
        Events = "events",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JmapFaultKind {
    /// 429, with a Retry-After in seconds if one is given.
    Throttled { retry_after: Option<u64> },
    /// 400 with the problem `limit`.
    LimitReached { retry_after: Option<u64> },
    /// 401, whatever the login.
    Unauthorized,
    /// 500.
    Internal,
    /// 503.
    Unavailable { retry_after: Option<u64> },
    /// Every method of the request answers with this error.
    MethodError { error: String },
    /// No response for `ms`, then 503.
    Hang {
        #[serde(default = "faults::default_hang_ms")]
        ms: u64,
    },
    /// The connection closes without a response.
    Cut,
    /// The connection is reset without a response.
    Reset,
    /// The connection closes in the middle of the response.
    CutBody,
    /// The body is sent in chunks of `bytes`, with a pause of `ms` before each.
    Slow { bytes: usize, ms: u64 },
    /// 200 with a body that is not a valid response.
    Garbage,
    /// The response is complete, but holds only half of the body.
    TruncatedJson,
    /// Every object of the response has a property that no document names.
    UnknownFields,
    /// One member of the response has a value of another type.
    ChangedType,
    /// A page of changes without any, and more to follow.
    EmptyPage,
    /// Events are never sent.
    Lost,
    /// There are no events: 204.
    NoEvents,
}

impl FaultKind for JmapFaultKind {
    type Route = JmapRoute;

    fn replaces_response(&self) -> bool {
        !matches!(
            self,
            Self::CutBody
                | Self::Slow { .. }
                | Self::TruncatedJson
                | Self::UnknownFields
                | Self::ChangedType
                | Self::EmptyPage
                | Self::Lost
        )
    }

    fn applies_to(&self, route: JmapRoute) -> bool {
        match self {
            Self::MethodError { .. } | Self::EmptyPage => route == JmapRoute::Api,
            Self::Lost | Self::NoEvents => route == JmapRoute::Events,
            Self::UnknownFields | Self::ChangedType => matches!(route, JmapRoute::Session | JmapRoute::Api),
            Self::CutBody | Self::Slow { .. } | Self::TruncatedJson => route != JmapRoute::Events,
            _ => true,
        }
    }

    fn damage(&self) -> Option<ResponseDamage> {
        match self {
            Self::CutBody => Some(ResponseDamage::CutBody),
            Self::Slow { bytes, ms } => Some(ResponseDamage::Slow { bytes: *bytes, ms: *ms }),
            Self::TruncatedJson => Some(ResponseDamage::TruncatedJson),
            Self::ChangedType => Some(ResponseDamage::ChangedType),
            _ => None,
        }
    }

    fn transient() -> Vec<Self> {
        vec![
            Self::Throttled { retry_after: Some(1) },
            Self::LimitReached { retry_after: None },
            Self::Internal,
            Self::Unavailable { retry_after: None },
            Self::MethodError { error: "serverUnavailable".to_owned() },
            Self::Hang { ms: 1_500 },
            Self::Cut,
            Self::Reset,
            Self::CutBody,
            Self::Slow { bytes: 4_000, ms: 20 },
            Self::Garbage,
            Self::TruncatedJson,
            Self::UnknownFields,
            Self::EmptyPage,
            Self::Lost,
        ]
    }
}

pub type JmapFault = faults::FaultRule<JmapFaultKind>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed_with_route_names() {
        let text = r#"{"kind":"method_error","error":"serverFail","route":"api","count":2}"#;
        let read: JmapFault = serde_json::from_str(text).unwrap();

        let kind = JmapFaultKind::MethodError { error: "serverFail".to_owned() };
        assert_eq!(read, JmapFault { route: Some(JmapRoute::Api), count: Some(2), ..JmapFault::always(kind) });
    }
}
