//! Organisations with people and groups, which the directories of Google and Microsoft show.
//!
//! An [`Organisation`] counts its changes, so that a directory can report what changed since. [`PeopleDirectory`]
//! holds all organisations of one provider and finds people by id or address. Each provider renders them in its own
//! format.

mod control;
mod directory_provider;
mod group;
mod operation;
mod organisation;
mod person;
mod registry;
mod sample_people;
mod truth;

pub(crate) use control::routes;
pub(crate) use directory_provider::PeopleProvider;
pub use directory_provider::{DirectoryProvider, NewOrganisation};
pub use group::{Group, GroupMember};
pub use operation::{NewPerson, PeopleOperation, PeopleOperationError, PeopleOperationOutcome, PersonChange};
pub use organisation::Organisation;
pub(crate) use person::domain_of;
pub use person::{Person, PersonField, PersonState};
pub(crate) use registry::{Organisations, PeopleDirectory};
pub use truth::{GroupTruth, OrganisationTruth, PersonTruth};
