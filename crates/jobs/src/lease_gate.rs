//! A filter before the lease in the database, to reduce load only: a candidate that passes still has to acquire the lease,
//! and without a gate every candidate tries.

use std::time::Duration;

use futures_util::future::BoxFuture;

/// Decides which process may try to acquire a lease.
pub trait LeaseGate: Send + Sync + std::fmt::Debug {
    /// Returns `false` only if another holder was let through within the last `lease`. In doubt it returns `true`.
    fn may_acquire<'a>(&'a self, name: &'a str, holder: &'a str, lease: Duration) -> BoxFuture<'a, bool>;

    /// Lets other holders try at once.
    fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> BoxFuture<'a, ()>;
}

/// Lets every process try, where processes share nothing but the database.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenLeaseGate;

impl LeaseGate for OpenLeaseGate {
    fn may_acquire<'a>(&'a self, _: &'a str, _: &'a str, _: Duration) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn release<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
