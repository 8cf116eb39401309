//! Lifelike email out of nothing but a seed: for benchmarks and for the simulated providers.
//!
//! [`Generator`] makes one mailbox, [`bench_mailbox`] the one that benchmarks use. Every byte is invented; all domains end in
//! `.test` or `.example`.

mod attachments;
mod bench;
mod clients;
mod compose;
mod dates;
mod desk;
mod generator;
mod kinds;
mod letter;
mod mbox;
mod mime;
mod people;
mod profile;
pub(crate) mod rng;
mod text;
mod threads;
mod transport;
mod words;

pub use bench::{bench_mailbox, bench_profile};
pub use compose::Composer;
pub use generator::{Generator, Message};
pub use kinds::Kind;
pub use letter::Letter;
pub use mbox::{LineEnd, append_to_mbox, write_mbox};
pub use people::{Company, Contact, Person, PersonId, companies};
pub use profile::{Attachments, Profile};
pub use words::Language;
