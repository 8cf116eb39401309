//! The domain types of the product: ids, states, rules, the connector interface and the clock. No I/O, no async runtime,
//! no SQL.

pub mod actor;
pub mod address;
pub mod backfill;
pub mod capabilities;
pub mod clock;
pub mod connection_field;
pub mod connection_input;
pub mod connector;
pub mod consent;
pub mod directory;
pub mod directory_rules;
pub mod event_type;
pub mod flags;
pub mod hash;
pub mod ids;
pub mod lane;
pub mod log_redaction;
pub mod mailbox;
pub mod mailbox_settings;
pub mod message_limits;
pub mod metrics;
pub mod provider;
pub mod provider_declaration;
pub mod push;
pub mod random;
pub mod search;
pub mod secret;
pub mod setting_values;
pub mod settings_in_force;
pub mod states;
pub mod suggestion;
pub mod tenant;
pub mod tenant_settings;
pub mod units;

pub use actor::{Actor, UnknownActor};
pub use address::{Address, Recipient, RecipientKind};
pub use backfill::Backfill;
pub use capabilities::Capabilities;
pub use clock::{Clock, SystemClock, TestClock};
pub use connection_field::{ConnectionField, FieldChoice, FieldKind, FieldOption, FieldValue};
pub use connection_input::{ConnectionDeclaration, ConnectionInput, NewConnection};
pub use connector::{Connector, ConnectorError, FolderRole};
pub use consent::{AuthorizationRequest, ConsentFlow, ConsentGrant};
pub use directory::{DirectoryPeoplePage, DirectoryPerson, GroupMembersPage};
pub use directory_rules::{DirectoryRules, ExclusionReason, GroupMembers, PersonSelector};
pub use event_type::{EventType, UnknownEventType};
pub use flags::Flags;
pub use hash::Sha256;
pub use ids::{
    ApiKeyId, AttachmentId, DeliveryId, EmailId, FolderId, JobId, MailboxId, PackId, RequestId, SecretId, TenantId,
    UserId, WebhookId, WorkerId,
};
pub use lane::Lane;
pub use log_redaction::redact_for_log;
pub use mailbox::{MailboxEvent, MailboxState};
pub use mailbox_settings::MailboxSettings;
pub use message_limits::MessageLimits;
pub use provider::Provider;
pub use provider_declaration::{
    ConsentDeclaration, DirectoryDeclaration, DirectoryLocation, InvalidField, ProviderDeclaration,
    ProviderDeclarations, PushDeclaration,
};
pub use push::{PushBatch, PushEndpoint, PushKind, PushNotification, PushReader, PushRefusal, PushSubject};
pub use random::{RandomSource, SystemRandom};
pub use secret::{Secret, SecretKind};
pub use setting_values::InvalidSetting;
pub use settings_in_force::SettingsInForce;
pub use states::{AttachmentStatus, DeliveryState, JobState, LedgerState, PackState, ProcessingStatus, WebhookState};
pub use tenant::PlanTier;
pub use tenant_settings::TenantSettings;
