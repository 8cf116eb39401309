//! Generates lifelike mail from a seed, for benchmarks and for the simulated providers.
//!
//! [`Generator`] makes one mailbox, [`bench_mailbox`] the one that benchmarks use. Every byte is invented; all domains
//! end in `.test` or `.example`.

mod attachments;
mod bench;
mod compose_context;
mod composer;
mod data;
mod dates;
mod generator;
mod kinds;
mod letter;
mod lexicon;
mod mail_programs;
mod mbox;
mod mime;
mod people;
mod profile;
pub(crate) mod rng;
mod text_writer;
mod threads;
mod transport;

pub use bench::{bench_mailbox, bench_profile};
pub use composer::Composer;
pub use generator::{GeneratedMessage, Generator};
pub use kinds::MailKind;
pub use letter::ComposedLetter;
pub use lexicon::Language;
pub use mbox::{LineEnd, append_to_mbox, write_mbox};
pub use people::{Company, Contact, Correspondent, PersonId, companies};
pub use profile::{AttachmentMix, Profile};
