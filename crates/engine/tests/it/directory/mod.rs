//! A tenant's directory becomes mailboxes, at Google and at Microsoft alike.

mod names;
mod people;
mod runs;
mod scene;
