//! Behaviour of the job queue across modules, on both databases.

#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

mod fairness;
mod leader;
mod plain;
mod recurring;
mod worker;
