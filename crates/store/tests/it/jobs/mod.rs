//! The durable queue: what holds on both databases.

mod control;
mod dead;
mod failpoints;
mod inspect;
mod interleave;
mod leases;
mod limits;
mod model;
pub mod moves;
mod prune;
mod schedules;
mod truth;
mod why;
