//! The durable queue: what holds on both databases.

mod control;
mod dead_letters;
mod diagnosis;
mod failpoints;
mod inspect;
mod interleave;
mod invariants;
mod leases;
mod limits;
mod model;
mod prune;
mod schedules;
pub mod transitions;
mod unregistered_kinds;
