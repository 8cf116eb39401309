//! Routes of the simulated Microsoft and the faults that can be injected there.

use serde::{Deserialize, Serialize};

use crate::faults::{self, FaultKind, http_fault_effects, routes};

routes! {
    /// The routes of the simulated Microsoft, by the names that faults and the request log use.
    MicrosoftRoute {
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
}

impl MicrosoftRoute {
    /// Finds the route of a method of the API description, with or without `/me` or `/users/{user-id}`.
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

    /// Returns whether the route belongs to Graph and takes an access token.
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

    /// Returns whether the route reads a mailbox, where message and folder ids appear.
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

    /// Returns whether the route answers in pages.
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

    /// Returns whether the route reads users.
    pub fn is_person(self) -> bool {
        matches!(self, Self::Me | Self::UsersList | Self::UsersDelta)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MicrosoftFaultKind {
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
    /// The response is complete, but holds only half of the JSON.
    TruncatedJson,
    /// Every object of the response has a field that no document names.
    UnknownFields,
    /// One member of the response has a value of another type.
    ChangedType,
    /// 401, whatever the token.
    Unauthorized,
    /// 403 `ErrorAccessDenied`.
    AccessDenied,
    /// 404 `ErrorItemNotFound`.
    NotFound,
    /// 404 `MailboxNotEnabledForRESTAPI`.
    MailboxNotEnabled,
    /// 410 `syncStateNotFound`, with a Location to start over at.
    DeltaExpired,
    /// 400 with a code that requires a full sync.
    Resync {
        #[serde(default = "resync_required")]
        code: String,
    },
    /// 507 `ErrorQuotaExceeded` on delta queries: no room for sync state.
    DeltaQuota,
    /// A page without items, with a link to the next page.
    EmptyPage,
    /// The items of a page are repeated.
    RepeatedItems,
    /// One part of a batch response is left out.
    MissingPart,
    /// The parts of a batch response come in another order.
    ShuffledParts,
    /// An error of the identity platform.
    Oauth {
        error: String,
        #[serde(default = "faults::default_oauth_status")]
        status: u16,
        /// The number after `AADSTS`.
        #[serde(default)]
        code: Option<u32>,
    },
    /// A notification that is never sent.
    Lost,
    /// A notification that is repeated `times` more.
    Duplicated {
        #[serde(default = "faults::default_repeats")]
        times: u32,
    },
    /// A notification that is delayed, so that later ones overtake it.
    Delayed { ms: u64 },
}

fn resync_required() -> String {
    "resyncRequired".to_owned()
}

impl FaultKind for MicrosoftFaultKind {
    type Route = MicrosoftRoute;

    fn replaces_response(&self) -> bool {
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

    http_fault_effects!();

    fn transient() -> Vec<Self> {
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
            Self::UnknownFields,
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

    fn applies_to(&self, route: MicrosoftRoute) -> bool {
        match self {
            Self::Lost | Self::Duplicated { .. } | Self::Delayed { .. } => route == MicrosoftRoute::Notify,
            _ if route == MicrosoftRoute::Notify => false,
            Self::DeltaExpired | Self::Resync { .. } | Self::DeltaQuota => route.is_delta(),
            Self::EmptyPage | Self::RepeatedItems => route.is_paged(),
            Self::MissingPart | Self::ShuffledParts => route == MicrosoftRoute::Batch,
            Self::Oauth { .. } => route == MicrosoftRoute::Token,
            Self::MailboxNotEnabled | Self::Locked => route.is_mail(),
            // Only JSON can be truncated.
            Self::TruncatedJson => !matches!(
                route,
                MicrosoftRoute::Authorize
                    | MicrosoftRoute::AdminConsent
                    | MicrosoftRoute::MessagesValue
                    | MicrosoftRoute::AttachmentsValue
            ),
            Self::Unauthorized | Self::AccessDenied | Self::NotFound => route.is_api(),
            _ => true,
        }
    }
}

pub type MicrosoftFault = faults::FaultRule<MicrosoftFaultKind>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::can_happen;

    #[test]
    fn faults_are_parsed_with_route_names() {
        let text = r#"{"kind":"resync","code":"SyncStateInvalid","route":"messages.delta","account":"a@x.test"}"#;
        let read: MicrosoftFault = serde_json::from_str(text).unwrap();

        let kind = MicrosoftFaultKind::Resync { code: "SyncStateInvalid".to_owned() };
        let account = Some("a@x.test".to_owned());
        assert_eq!(
            read,
            MicrosoftFault { route: Some(MicrosoftRoute::MessagesDelta), account, ..MicrosoftFault::always(kind) }
        );
    }

    #[test]
    fn faults_occur_only_on_their_routes() {
        for route in MicrosoftRoute::ALL {
            assert_eq!(
                can_happen(&MicrosoftFaultKind::DeltaExpired, route),
                route.as_str().ends_with(".delta"),
                "{route:?}"
            );
            assert_eq!(can_happen(&MicrosoftFaultKind::Lost, route), route == MicrosoftRoute::Notify);
            assert_eq!(can_happen(&MicrosoftFaultKind::Cut, route), route != MicrosoftRoute::Notify);
        }
    }
}
