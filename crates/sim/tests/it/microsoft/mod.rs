//! The simulated Microsoft, as programs and scripts meet it.

mod batch;
mod delta;
mod directory;
mod faults;
mod hook;
mod identity;
mod limits;
mod place;
mod programs;
mod reading;
mod speed;
mod strict;
mod subscriptions;
