//! Routes of the simulated Google and the faults that can be injected there.

use serde::{Deserialize, Serialize};

use crate::faults::{self, FaultKind, http_fault_effects, routes};

routes! {
    /// The routes of the simulated Google, by the names that faults and the request log use.
    GoogleRoute {
        Authorize = "authorize",
        Token = "token",
        Revoke = "revoke",
        Certs = "certs",
        Userinfo = "userinfo",
        Profile = "profile",
        MessagesList = "messages.list",
        MessagesGet = "messages.get",
        AttachmentsGet = "attachments.get",
        HistoryList = "history.list",
        LabelsList = "labels.list",
        LabelsGet = "labels.get",
        Watch = "watch",
        Stop = "stop",
        UsersList = "users.list",
        UsersGet = "users.get",
        GroupsList = "groups.list",
        GroupsGet = "groups.get",
        MembersList = "members.list",
        OrgUnitsList = "orgunits.list",
        Batch = "batch",
        Push = "push",
    }
}

impl GoogleRoute {
    /// Finds the route of a method of the discovery document.
    pub fn of(method: &str) -> Option<Self> {
        Some(match method {
            "gmail.users.getProfile" => Self::Profile,
            "gmail.users.messages.list" => Self::MessagesList,
            "gmail.users.messages.get" => Self::MessagesGet,
            "gmail.users.messages.attachments.get" => Self::AttachmentsGet,
            "gmail.users.history.list" => Self::HistoryList,
            "gmail.users.labels.list" => Self::LabelsList,
            "gmail.users.labels.get" => Self::LabelsGet,
            "gmail.users.watch" => Self::Watch,
            "gmail.users.stop" => Self::Stop,
            "oauth2.userinfo.get" => Self::Userinfo,
            "directory.users.list" => Self::UsersList,
            "directory.users.get" => Self::UsersGet,
            "directory.groups.list" => Self::GroupsList,
            "directory.groups.get" => Self::GroupsGet,
            "directory.members.list" => Self::MembersList,
            "directory.orgunits.list" => Self::OrgUnitsList,
            _ => return None,
        })
    }

    /// Returns whether the route belongs to the directory API.
    pub fn is_directory(self) -> bool {
        matches!(
            self,
            Self::UsersList
                | Self::UsersGet
                | Self::GroupsList
                | Self::GroupsGet
                | Self::MembersList
                | Self::OrgUnitsList
        )
    }

    /// Returns whether the route takes an access token and is described by a discovery document.
    pub fn is_api(self) -> bool {
        !matches!(
            self,
            Self::Authorize | Self::Token | Self::Revoke | Self::Certs | Self::Batch | Self::Push | Self::Userinfo
        )
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GoogleFaultKind {
    /// 429 `rateLimitExceeded`, with a Retry-After in seconds if one is given.
    Throttled {
        retry_after: Option<u64>,
    },
    /// 403 `userRateLimitExceeded`.
    UserRateLimited {
        retry_after: Option<u64>,
    },
    /// 403 `rateLimitExceeded`.
    RateLimited {
        retry_after: Option<u64>,
    },
    /// 403 `quotaExceeded` of the directory API.
    QuotaExceeded,
    /// 403.
    DailyLimit,
    DomainPolicy,
    InsufficientPermissions,
    AccessNotConfigured,
    /// 400 `failedPrecondition`.
    FailedPrecondition,
    /// 401, whatever the token.
    Unauthorized,
    /// 404, as for an expired history id or a deleted message.
    NotFound,
    /// 500.
    Internal,
    /// 503.
    Unavailable {
        retry_after: Option<u64>,
    },
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
    Slow {
        bytes: usize,
        ms: u64,
    },
    /// 200 with a body that is not a valid response.
    Garbage,
    /// The response is complete, but holds only half of the JSON.
    TruncatedJson,
    /// Every object of the response has a field that no document names.
    UnknownFields,
    /// One member of the response has a value of another type.
    ChangedType,
    /// The history id has expired.
    HistoryExpired,
    /// A page without items, with a token for the next page.
    EmptyPage,
    /// `raw` and `data` are padded with `=`.
    Padded,
    /// One part of a batch response is left out.
    MissingPart,
    /// The parts of a batch response come in another order.
    ShuffledParts,
    /// An OAuth error with its status.
    Oauth {
        error: String,
        #[serde(default = "faults::default_oauth_status")]
        status: u16,
    },
    /// A push that is never sent.
    Lost,
    /// A push that is repeated `times` more.
    Duplicated {
        #[serde(default = "faults::default_repeats")]
        times: u32,
    },
    /// A push that is delayed, so that later ones overtake it.
    Delayed {
        ms: u64,
    },
}

impl FaultKind for GoogleFaultKind {
    type Route = GoogleRoute;

    fn replaces_response(&self) -> bool {
        use GoogleFaultKind::{
            ChangedType, CutBody, Delayed, Duplicated, EmptyPage, MissingPart, Padded, ShuffledParts, Slow,
            TruncatedJson, UnknownFields,
        };
        !matches!(
            self,
            CutBody
                | Slow { .. }
                | TruncatedJson
                | UnknownFields
                | ChangedType
                | EmptyPage
                | Padded
                | MissingPart
                | ShuffledParts
                | Duplicated { .. }
                | Delayed { .. }
        )
    }

    http_fault_effects!();

    fn transient() -> Vec<Self> {
        vec![
            Self::Throttled { retry_after: Some(1) },
            Self::UserRateLimited { retry_after: None },
            Self::Internal,
            Self::Unavailable { retry_after: None },
            Self::Unauthorized,
            Self::Hang { ms: 1_500 },
            Self::Cut,
            Self::Reset,
            Self::CutBody,
            Self::Slow { bytes: 4_000, ms: 20 },
            Self::Garbage,
            Self::TruncatedJson,
            Self::UnknownFields,
            Self::HistoryExpired,
            Self::EmptyPage,
            Self::Padded,
            Self::MissingPart,
            Self::ShuffledParts,
            Self::Lost,
            Self::Duplicated { times: 3 },
            Self::Delayed { ms: 2_000 },
        ]
    }

    fn applies_to(&self, route: GoogleRoute) -> bool {
        match self {
            Self::Lost | Self::Duplicated { .. } | Self::Delayed { .. } => route == GoogleRoute::Push,
            _ if route == GoogleRoute::Push => false,
            Self::HistoryExpired => route == GoogleRoute::HistoryList,
            Self::EmptyPage => {
                matches!(
                    route,
                    GoogleRoute::MessagesList
                        | GoogleRoute::UsersList
                        | GoogleRoute::GroupsList
                        | GoogleRoute::MembersList
                )
            }
            Self::QuotaExceeded => route.is_directory(),
            Self::FailedPrecondition => route.is_api() && !route.is_directory(),
            Self::Padded => matches!(route, GoogleRoute::MessagesGet | GoogleRoute::AttachmentsGet),
            Self::MissingPart | Self::ShuffledParts => route == GoogleRoute::Batch,
            Self::Oauth { .. } => matches!(route, GoogleRoute::Token | GoogleRoute::Revoke),
            Self::UserRateLimited { .. }
            | Self::RateLimited { .. }
            | Self::DailyLimit
            | Self::DomainPolicy
            | Self::InsufficientPermissions
            | Self::AccessNotConfigured
            | Self::NotFound
            | Self::Unauthorized => route.is_api(),
            _ => true,
        }
    }
}

pub type GoogleFault = faults::FaultRule<GoogleFaultKind>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed_with_route_names() {
        let text =
            r#"{"kind":"user_rate_limited","retry_after":3,"route":"messages.get","account":"a@x.test","count":2}"#;
        let read: GoogleFault = serde_json::from_str(text).unwrap();

        let kind = GoogleFaultKind::UserRateLimited { retry_after: Some(3) };
        let account = Some("a@x.test".to_owned());
        assert_eq!(
            read,
            GoogleFault { route: Some(GoogleRoute::MessagesGet), account, count: Some(2), ..GoogleFault::always(kind) }
        );
    }

    #[test]
    fn route_names_are_distinct() {
        let names: std::collections::BTreeSet<&str> = GoogleRoute::ALL.map(GoogleRoute::as_str).into();

        assert_eq!(names.len(), GoogleRoute::ALL.len());
    }
}
