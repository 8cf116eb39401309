//! Who may ask the database for a lease. Speed only: whoever may try still has to get the lease, and without a gate
//! everybody tries.

use std::time::Duration;

use futures_util::future::BoxFuture;

pub trait Gate: Send + Sync + std::fmt::Debug {
    /// `false` only while another holder, not longer ago than a lease, was told that it may. In doubt `true`.
    fn may_try<'a>(&'a self, name: &'a str, holder: &'a str, lease: Duration) -> BoxFuture<'a, bool>;

    /// Others may try at once.
    fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> BoxFuture<'a, ()>;
}

/// Where nothing is shared but the database.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoGate;

impl Gate for NoGate {
    fn may_try<'a>(&'a self, _: &'a str, _: &'a str, _: Duration) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn release<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
