//! The promises of every connector, and of the kit itself.

#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

mod app;
mod arrows;
mod contract;
mod names;
mod provider_names;
mod sources;
mod storm;
mod world;
