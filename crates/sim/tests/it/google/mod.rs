//! The simulated Google, through its API and control API.

mod batch;
mod control;
mod directory;
mod faults;
mod gmail;
mod harness;
mod history;
mod listing;
mod oauth;
mod push;
mod quota;
mod service_account;
mod strict;
pub mod tokens;
