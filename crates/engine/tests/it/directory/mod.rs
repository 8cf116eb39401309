//! A tenant's directory becomes mailboxes, at Google and at Microsoft alike.

mod directory_app;
mod names;
mod people;
mod runs;
