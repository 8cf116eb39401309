//! What Microsoft does wrong, when it is told to.

use serde::{Deserialize, Serialize};

use crate::faults::{self, Damage, Failing, routes};

routes! {
    Discovery = "discovery",
    Keys = "keys",
    Authorize = "authorize",
    AdminConsent = "adminconsent",
    Token = "token",
    Me = "me",
    UsersList = "users.list",
    UsersDelta = "users.delta",
    GroupsList = "groups.list",
    GroupsGet = "groups.get",
    GroupsMembers = "groups.members",
    GroupsAllMembers = "groups.transitive_members",
    FoldersList = "folders.list",
    FoldersGet = "folders.get",
    FoldersChildren = "folders.children",
    FoldersDelta = "folders.delta",
    MessagesList = "messages.list",
    MessagesGet = "messages.get",
    MessagesValue = "messages.value",
    MessagesDelta = "messages.delta",
    AttachmentsList = "attachments.list",
    AttachmentsGet = "attachments.get",
    AttachmentsValue = "attachments.value",
    Batch = "batch",
    SubscriptionsCreate = "subscriptions.create",
    SubscriptionsList = "subscriptions.list",
    SubscriptionsGet = "subscriptions.get",
    SubscriptionsRenew = "subscriptions.renew",
    SubscriptionsDelete = "subscriptions.delete",
    SubscriptionsReauthorize = "subscriptions.reauthorize",
    Notify = "notify",
}

impl Route {
    /// By the id of the method in the description, without `/me` or `/users/{user-id}` before it.
    pub fn of(method: &str) -> Option<Self> {
        let (verb, path) = method.split_once(' ')?;
        let inner = path.strip_prefix("/me").or_else(|| path.strip_prefix("/users/{user-id}"));
        Some(match (verb, inner.unwrap_or(path)) {
            ("get", "") => Self::Me,
            ("get", "/users") => Self::UsersList,
            ("get", "/users/microsoft.graph.delta()") => Self::UsersDelta,
            ("get", "/groups") => Self::GroupsList,
            ("get", "/groups/{group-id}") => Self::GroupsGet,
            ("get", "/groups/{group-id}/members" | "/groups/{group-id}/members/microsoft.graph.user") => {
                Self::GroupsMembers
            }
            (
                "get",
                "/groups/{group-id}/transitiveMembers" | "/groups/{group-id}/transitiveMembers/microsoft.graph.user",
            ) => Self::GroupsAllMembers,
            ("get", "/mailFolders") => Self::FoldersList,
            ("get", "/mailFolders/{mailFolder-id}") => Self::FoldersGet,
            ("get", "/mailFolders/{mailFolder-id}/childFolders") => Self::FoldersChildren,
            ("get", "/mailFolders/microsoft.graph.delta()") => Self::FoldersDelta,
            ("get", "/messages" | "/mailFolders/{mailFolder-id}/messages") => Self::MessagesList,
            ("get", "/mailFolders/{mailFolder-id}/messages/microsoft.graph.delta()") => Self::MessagesDelta,
            ("get", "/messages/{message-id}") => Self::MessagesGet,
            ("get", "/messages/{message-id}/$value") => Self::MessagesValue,
            ("get", "/messages/{message-id}/attachments") => Self::AttachmentsList,
            ("get", "/messages/{message-id}/attachments/{attachment-id}") => Self::AttachmentsGet,
            ("get", "/messages/{message-id}/attachments/{attachment-id}/$value") => Self::AttachmentsValue,
            ("post", "/subscriptions") => Self::SubscriptionsCreate,
            ("get", "/subscriptions") => Self::SubscriptionsList,
            ("get", "/subscriptions/{subscription-id}") => Self::SubscriptionsGet,
            ("patch", "/subscriptions/{subscription-id}") => Self::SubscriptionsRenew,
            ("delete", "/subscriptions/{subscription-id}") => Self::SubscriptionsDelete,
            ("post", "/subscriptions/{subscription-id}/microsoft.graph.reauthorize") => Self::SubscriptionsReauthorize,
            _ => return None,
        })
    }

    /// Asked of Graph with an access token.
    pub fn is_api(self) -> bool {
        !matches!(
            self,
            Self::Discovery
                | Self::Keys
                | Self::Authorize
                | Self::AdminConsent
                | Self::Token
                | Self::Batch
                | Self::Notify
        )
    }

    /// What lies in a mailbox, where ids of messages and folders are told.
    pub fn is_mail(self) -> bool {
        self.is_folder() || self.is_message()
    }

    fn is_folder(self) -> bool {
        matches!(self, Self::FoldersList | Self::FoldersGet | Self::FoldersChildren | Self::FoldersDelta)
    }

    fn is_message(self) -> bool {
        matches!(
            self,
            Self::MessagesList
                | Self::MessagesGet
                | Self::MessagesValue
                | Self::MessagesDelta
                | Self::AttachmentsList
                | Self::AttachmentsGet
                | Self::AttachmentsValue
        )
    }

    pub fn is_delta(self) -> bool {
        matches!(self, Self::FoldersDelta | Self::MessagesDelta | Self::UsersDelta)
    }

    /// Answered with pages.
    pub fn is_paged(self) -> bool {
        self.is_delta()
            || matches!(self, Self::MessagesList | Self::FoldersList | Self::FoldersChildren)
            || matches!(self, Self::UsersList | Self::GroupsList | Self::GroupsMembers | Self::GroupsAllMembers)
    }

    pub fn is_group(self) -> bool {
        matches!(self, Self::GroupsList | Self::GroupsGet | Self::GroupsMembers | Self::GroupsAllMembers)
    }

    pub fn is_subscription(self) -> bool {
        self.is_api() && !self.is_mail() && !self.is_group() && !self.is_person()
    }

    /// One person, or all of a directory.
    pub fn is_person(self) -> bool {
        matches!(self, Self::Me | Self::UsersList | Self::UsersDelta)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// 429, with a Retry-After in seconds if one is given.
    Throttled { retry_after: Option<u64> },
    /// 500.
    Internal,
    /// 502.
    BadGateway,
    /// 503.
    Unavailable { retry_after: Option<u64> },
    /// 504.
    GatewayTimeout,
    /// 509.
    BandwidthExceeded,
    /// 423.
    Locked,
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
    Slow { bytes: usize, ms: u64 },
    /// 200, and something that is no answer.
    Garbage,
    /// A whole answer with half the JSON in it.
    TruncatedJson,
    /// 401, whatever the token.
    Unauthorized,
    /// 403 `ErrorAccessDenied`.
    AccessDenied,
    /// 404 `ErrorItemNotFound`.
    NotFound,
    /// 404 `MailboxNotEnabledForRESTAPI`.
    MailboxNotEnabled,
    /// 410 `syncStateNotFound`, with a Location that starts over.
    DeltaExpired,
    /// 400 with a code that asks for a fresh start.
    Resync {
        #[serde(default = "resync_required")]
        code: String,
    },
    /// A mailbox with no room left for sync state: 507 `ErrorQuotaExceeded`, on delta only.
    DeltaQuota,
    /// A page without items, and a link to the next.
    EmptyPage,
    /// Items of a page come twice.
    RepeatedItems,
    /// One of the parts of a batch is left out.
    MissingPart,
    /// The parts of a batch come in another order.
    ShuffledParts,
    /// An error of the identity platform.
    Oauth {
        error: String,
        #[serde(default = "bad_request")]
        status: u16,
        /// The number after `AADSTS`.
        #[serde(default)]
        code: Option<u32>,
    },
    /// A notification that is never sent.
    Lost,
    /// A notification that is sent so many times more.
    Duplicated {
        #[serde(default = "once_more")]
        times: u32,
    },
    /// A notification that waits, so that later ones overtake it.
    Delayed { ms: u64 },
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

fn resync_required() -> String {
    "resyncRequired".to_owned()
}

impl Failing for Kind {
    type Route = Route;

    fn is_answer(&self) -> bool {
        self.damage().is_none()
            && !matches!(
                self,
                Self::EmptyPage
                    | Self::RepeatedItems
                    | Self::MissingPart
                    | Self::ShuffledParts
                    | Self::Duplicated { .. }
                    | Self::Delayed { .. }
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
            Self::Internal,
            Self::BadGateway,
            Self::Unavailable { retry_after: None },
            Self::GatewayTimeout,
            Self::Locked,
            Self::Unauthorized,
            Self::Hang { ms: 1_500 },
            Self::Cut,
            Self::Reset,
            Self::CutBody,
            Self::Slow { bytes: 4_000, ms: 20 },
            Self::Garbage,
            Self::TruncatedJson,
            Self::DeltaExpired,
            Self::Resync { code: resync_required() },
            Self::DeltaQuota,
            Self::EmptyPage,
            Self::RepeatedItems,
            Self::MissingPart,
            Self::ShuffledParts,
            Self::Lost,
            Self::Duplicated { times: 3 },
            Self::Delayed { ms: 2_000 },
        ]
    }

    fn concerns(&self, route: Route) -> bool {
        match self {
            Self::Lost | Self::Duplicated { .. } | Self::Delayed { .. } => route == Route::Notify,
            _ if route == Route::Notify => false,
            Self::DeltaExpired | Self::Resync { .. } | Self::DeltaQuota => route.is_delta(),
            Self::EmptyPage | Self::RepeatedItems => route.is_paged(),
            Self::MissingPart | Self::ShuffledParts => route == Route::Batch,
            Self::Oauth { .. } => route == Route::Token,
            Self::MailboxNotEnabled | Self::Locked => route.is_mail(),
            // What is no JSON cannot be half of it.
            Self::TruncatedJson => !matches!(
                route,
                Route::Authorize | Route::AdminConsent | Route::MessagesValue | Route::AttachmentsValue
            ),
            Self::Unauthorized | Self::AccessDenied | Self::NotFound => route.is_api(),
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
        let text = r#"{"kind":"resync","code":"SyncStateInvalid","route":"messages.delta","account":"a@x.test"}"#;
        let read: Fault = serde_json::from_str(text).unwrap();

        let kind = Kind::Resync { code: "SyncStateInvalid".to_owned() };
        let account = Some("a@x.test".to_owned());
        assert_eq!(read, Fault { route: Some(Route::MessagesDelta), account, ..Fault::always(kind) });
    }

    #[test]
    fn a_delta_expires_where_there_is_one_and_a_push_is_lost_where_there_is_one() {
        for route in Route::ALL {
            assert_eq!(can_happen(&Kind::DeltaExpired, route), route.as_str().ends_with(".delta"), "{route:?}");
            assert_eq!(can_happen(&Kind::Lost, route), route == Route::Notify);
            assert_eq!(can_happen(&Kind::Cut, route), route != Route::Notify);
        }
    }
}
