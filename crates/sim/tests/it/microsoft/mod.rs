//! The simulated Microsoft, through its API and control API.

mod batch;
mod delta;
mod directory;
mod faults;
mod harness;
mod identity;
mod limits;
mod programs;
mod reading;
mod strict;
mod subscriptions;
mod webhook_stub;
