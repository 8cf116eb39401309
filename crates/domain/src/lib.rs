//! The words of the product: ids, states, rules and the clock. No I/O, no async runtime, no SQL.

pub mod address;
pub mod clock;
pub mod connector;
pub mod consent;
pub mod directory;
pub mod flags;
pub mod hash;
pub mod ids;
pub mod lane;
pub mod limits;
pub mod mailbox;
pub mod rules;
pub mod search;
pub mod secret;
pub mod states;
pub mod tenant;

pub use address::{Address, Recipient, RecipientKind};
pub use clock::{Clock, SystemClock, TestClock};
pub use connector::{Connector, ConnectorError, FolderRole};
pub use consent::{Consent, Consented, Question};
pub use directory::{MembersPage, PeoplePage, Person};
pub use flags::Flags;
pub use hash::Sha256;
pub use ids::{
    ApiKeyId, AttachmentId, DeliveryId, EmailId, FolderId, JobId, MailboxId, PackId, RequestId, SecretId, TenantId,
    UserId, WebhookId, WorkerId,
};
pub use lane::Lane;
pub use limits::Limits;
pub use mailbox::{MailboxState, Provider};
pub use rules::{Choice, Groups, LeftOut, Rules};
pub use secret::{Secret, SecretKind};
pub use states::{AttachmentStatus, DeliveryState, JobState, LedgerState, PackState, ProcessingStatus, WebhookState};
pub use tenant::PlanTier;
