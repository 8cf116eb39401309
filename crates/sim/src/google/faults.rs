//! What Google does wrong, when it is told to.

use serde::{Deserialize, Serialize};

use crate::faults::{self, Damage, Failing, routes};

routes! {
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

impl Route {
    /// By the id of the method in the discovery document.
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

    /// Who there is in an organisation.
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

    /// Asked with an account's access token, and answered with JSON that a document describes.
    pub fn is_api(self) -> bool {
        !matches!(
            self,
            Self::Authorize | Self::Token | Self::Revoke | Self::Certs | Self::Batch | Self::Push | Self::Userinfo
        )
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
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
    /// 403 `quotaExceeded`, as the directory says it.
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
    /// 404, as for a history id that has expired or a message that is gone.
    NotFound,
    /// 500.
    Internal,
    /// 503.
    Unavailable {
        retry_after: Option<u64>,
    },
    /// Nothing for so long, then 503.
    Hang {
        #[serde(default = "an_hour")]
        ms: u64,
    },
    /// The connection ends without an answer.
    Cut,
    /// The same, with a reset.
    Reset,
    /// The connection ends in the middle of the answer.
    CutBody,
    /// So many bytes, then so many milliseconds of nothing, and so on.
    Slow {
        bytes: usize,
        ms: u64,
    },
    /// 200, and something that is no answer.
    Garbage,
    /// A whole answer with half the JSON in it.
    TruncatedJson,
    /// The history id has expired.
    HistoryExpired,
    /// A listing's page without messages, and a token for the next.
    EmptyPage,
    /// `raw` and `data` end with `=` where base64 has it.
    Padded,
    /// The answer's pieces come, and one of the parts of a batch is left out.
    MissingPart,
    /// The parts of a batch come in another order.
    ShuffledParts,
    /// An error of OAuth, with its status.
    Oauth {
        error: String,
        #[serde(default = "bad_request")]
        status: u16,
    },
    /// A push that is never sent.
    Lost,
    /// A push that is sent so many times more.
    Duplicated {
        #[serde(default = "once_more")]
        times: u32,
    },
    /// A push that waits, so that later ones overtake it.
    Delayed {
        ms: u64,
    },
}

fn an_hour() -> u64 {
    3_600_000
}

fn bad_request() -> u16 {
    400
}

fn once_more() -> u32 {
    1
}

impl Failing for Kind {
    type Route = Route;

    fn is_answer(&self) -> bool {
        use Kind::{CutBody, Delayed, Duplicated, EmptyPage, MissingPart, Padded, ShuffledParts, Slow, TruncatedJson};
        !matches!(
            self,
            CutBody
                | Slow { .. }
                | TruncatedJson
                | EmptyPage
                | Padded
                | MissingPart
                | ShuffledParts
                | Duplicated { .. }
                | Delayed { .. }
        )
    }

    fn damage(&self) -> Option<Damage> {
        match self {
            Self::CutBody => Some(Damage::CutBody),
            Self::Slow { bytes, ms } => Some(Damage::Slow { bytes: *bytes, ms: *ms }),
            Self::TruncatedJson => Some(Damage::TruncatedJson),
            _ => None,
        }
    }

    fn passing() -> Vec<Self> {
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

    fn concerns(&self, route: Route) -> bool {
        match self {
            Self::Lost | Self::Duplicated { .. } | Self::Delayed { .. } => route == Route::Push,
            _ if route == Route::Push => false,
            Self::HistoryExpired => route == Route::HistoryList,
            Self::EmptyPage => {
                matches!(route, Route::MessagesList | Route::UsersList | Route::GroupsList | Route::MembersList)
            }
            Self::QuotaExceeded => route.is_directory(),
            Self::FailedPrecondition => route.is_api() && !route.is_directory(),
            Self::Padded => matches!(route, Route::MessagesGet | Route::AttachmentsGet),
            Self::MissingPart | Self::ShuffledParts => route == Route::Batch,
            Self::Oauth { .. } => matches!(route, Route::Token | Route::Revoke),
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
        let text =
            r#"{"kind":"user_rate_limited","retry_after":3,"route":"messages.get","account":"a@x.test","count":2}"#;
        let read: Fault = serde_json::from_str(text).unwrap();

        let kind = Kind::UserRateLimited { retry_after: Some(3) };
        let account = Some("a@x.test".to_owned());
        assert_eq!(read, Fault { route: Some(Route::MessagesGet), account, count: Some(2), ..Fault::always(kind) });
    }

    #[test]
    fn every_route_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = Route::ALL.map(Route::as_str).into();

        assert_eq!(names.len(), Route::ALL.len());
    }
}
