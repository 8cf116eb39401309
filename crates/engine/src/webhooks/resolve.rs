//! From names to addresses, each of which is looked at before anything connects to it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::address::Policy;

pub type Found<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Who knows the addresses of names.
pub trait Resolver: Send + Sync + fmt::Debug {
    fn resolve<'a>(&'a self, name: &'a str) -> Found<'a>;
}

/// Names that are looked up at the same time. Each takes a thread for as long as the system takes.
const LOOKUPS: usize = 64;

/// For all that it tries.
const LONGEST_LOOKUP: Duration = Duration::from_secs(10);

/// Connections that are made in quick succession ask once.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// Names that are remembered.
const KEPT: usize = 4096;

/// The operating system's.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Found<'a> {
        Box::pin(async {
            let permit = self.lookups.clone().acquire_owned().await.map_err(io::Error::other)?;
            let name = name.to_owned();
            let found = tokio::task::spawn_blocking(move || {
                // Until the system has answered, also when nobody waits any more.
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
            });
            found.await.map_err(io::Error::other)?
        })
    }
}

/// It does not say which address that was, nor whether there is any: a name may be one of the operator's own network.
#[derive(Debug, thiserror::Error)]
#[error("its name leads to no address that may be reached")]
pub struct NoAddress;

/// Gives out only addresses that may be reached. If one of a name's may not, none is: whoever answers with both is up to
/// something. The connection goes to one of those that were looked at, so an answer that changes meanwhile changes nothing.
#[derive(Debug, Clone)]
pub(super) struct Checked(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    resolver: Arc<dyn Resolver>,
    policy: Policy,
    is_encrypted: bool,
    kept: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Kept>>>>>,
}

#[derive(Debug)]
struct Kept {
    at: Instant,
    addresses: Vec<IpAddr>,
}

impl Checked {
    pub fn new(resolver: Arc<dyn Resolver>, policy: Policy, is_encrypted: bool) -> Self {
        Self(Arc::new(Inner { resolver, policy, is_encrypted, kept: Mutex::default() }))
    }
}

impl Inner {
    async fn find(&self, name: &str) -> Result<Vec<IpAddr>, NoAddress> {
        let place = self.place(name);
        // Of several who want the same name, one asks.
        let mut place = place.lock().await;
        if let Some(kept) = &*place
            && kept.at.elapsed() < KEPT_FOR
        {
            return Ok(kept.addresses.clone());
        }
        *place = None;
        let found = timeout(LONGEST_LOOKUP, self.resolver.resolve(name)).await;
        let addresses = found.map_err(|_| NoAddress)?.map_err(|_| NoAddress)?;
        if addresses.is_empty() || !addresses.iter().all(|ip| self.policy.allows(*ip, self.is_encrypted)) {
            return Err(NoAddress);
        }
        *place = Some(Kept { at: Instant::now(), addresses: addresses.clone() });
        Ok(addresses)
    }

    fn place(&self, name: &str) -> Arc<tokio::sync::Mutex<Option<Kept>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.entry(name.to_owned()).or_default().clone()
    }
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let inner = self.0.clone();
        Box::pin(async move {
            let addresses = inner.find(name.as_str()).await?;
            // Port 0: that of the URL.
            let addresses: Addrs = Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug)]
    struct Fixed(&'static [&'static str], AtomicUsize);

    impl Resolver for Fixed {
        fn resolve<'a>(&'a self, _: &'a str) -> Found<'a> {
            self.1.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(self.0.iter().map(|ip| ip.parse().unwrap()).collect()) })
        }
    }

    async fn found(answer: &'static [&'static str], is_encrypted: bool) -> Option<usize> {
        let policy = Policy::new(["10.0.0.0/8".parse().unwrap()]);
        let checked = Checked::new(Arc::new(Fixed(answer, AtomicUsize::new(0))), policy, is_encrypted);
        checked.0.find("a.test").await.ok().map(|found| found.len())
    }

    #[tokio::test]
    async fn one_address_that_may_not_be_reached_spoils_the_name() {
        assert_eq!(found(&["1.1.1.1", "2606:4700::1"], true).await, Some(2));
        assert_eq!(found(&["1.1.1.1", "10.1.1.1"], true).await, Some(2));
        for answer in [&["1.1.1.1", "127.0.0.1"][..], &["::1", "1.1.1.1"], &["192.168.1.1"], &[]] {
            assert_eq!(found(answer, true).await, None, "{answer:?}");
        }
        assert_eq!(found(&["10.1.1.1"], false).await, Some(1));
        assert_eq!(found(&["10.1.1.1", "1.1.1.1"], false).await, None, "not without encryption");
    }

    #[tokio::test]
    async fn many_who_connect_at_once_ask_once() {
        let resolver = Arc::new(Fixed(&["1.1.1.1"], AtomicUsize::new(0)));
        let checked = Checked::new(resolver.clone(), Policy::default(), true);
        let found = futures_util::future::join_all((0..16).map(|_| checked.0.find("a.test"))).await;
        assert!(found.iter().all(Result::is_ok));
        assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
    }
}
