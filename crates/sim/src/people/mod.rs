//! Who works where: organisations with their people and groups, as the directories of Google and Microsoft show them.
//!
//! An [`Organisation`] is state out of nothing but what is done to it, counted in changes, so that a directory can tell what
//! happened since. [`People`] holds all organisations of one provider and finds whoever has a name there. How a provider
//! shows them is its own business.

mod control;
mod group;
mod operation;
mod organisation;
mod organised;
mod person;
mod registry;
mod spread;
mod truth;

pub(crate) use control::routes;
pub use group::{Group, Member};
pub use operation::{NewPerson, PeopleApplied, PeopleOperation, PeopleRefused, PersonChange};
pub use organisation::Organisation;
pub use organised::{NewOrganisation, Organised};
pub(crate) use person::domain_of;
pub use person::{Field, Person, State};
pub(crate) use registry::{Organisations, People};
pub use truth::{OrganisationTruth, TruthGroup, TruthPerson};
