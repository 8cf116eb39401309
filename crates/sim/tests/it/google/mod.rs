//! The simulated Google, as programs and scripts meet it.

mod batch;
mod control;
mod directory;
mod faults;
mod gmail;
mod history;
mod listing;
mod oauth;
mod place;
mod push;
mod quota;
mod service_account;
mod speed;
mod strict;
pub mod tokens;
