//! What people do with tenants and mailboxes, the record of it, and what they use.

pub mod audit;
pub mod erasure;
pub mod mailboxes;
pub mod usage;
pub mod usage_writer;
