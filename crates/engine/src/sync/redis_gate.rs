//! The lease gate of processes that share a Redis.

use std::time::Duration;

use futures_util::future::BoxFuture;
use jobs::LeaseGate;
use outbound::Redis;

/// Lets one process at a time try for a lease, as far as Redis knows.
#[derive(Debug, Clone)]
pub struct RedisGate(pub Redis);

impl LeaseGate for RedisGate {
    fn may_acquire<'a>(&'a self, name: &'a str, holder: &'a str, lease: Duration) -> BoxFuture<'a, bool> {
        Box::pin(self.0.reserve_lease(name, holder, lease))
    }

    fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.0.release_lease(name, holder))
    }
}
