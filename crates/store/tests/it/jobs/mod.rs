//! The durable queue: what holds on both databases.

mod moves;
