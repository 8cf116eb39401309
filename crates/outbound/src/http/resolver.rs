//! Resolves host names and checks every address before anything connects to it.

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

use super::address_policy::AddressPolicy;

pub type ResolvedAddresses<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves host names.
pub trait Resolver: Send + Sync + fmt::Debug {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolvedAddresses<'a>;
}

/// Look-ups at the same time. Each takes a thread for as long as the system takes.
const CONCURRENT_LOOKUPS: usize = 64;

/// The timeout of a look-up, over all servers that the system tries.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long addresses are cached, for connections in quick succession.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// The size of the cache.
const MAX_CACHED_NAMES: usize = 4096;

/// The resolver of the operating system.
#[derive(Debug, Clone)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(CONCURRENT_LOOKUPS)) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolvedAddresses<'a> {
        Box::pin(async {
            let permit = self.lookups.clone().acquire_owned().await.map_err(io::Error::other)?;
            let name = name.to_owned();
            let found = tokio::task::spawn_blocking(move || {
                // Held until the system has answered, even if the caller was cancelled.
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
            });
            found.await.map_err(io::Error::other)?
        })
    }
}

/// A host name has no address that may be reached. Does not reveal which address, nor whether there is any: a name may
/// be one of the operator's own network.
#[derive(Debug, thiserror::Error)]
#[error("the host name has no address that may be reached")]
pub struct NoAddress;

/// Returns only addresses that may be reached, and none if one of a name's may not: such an answer is an attack. The
/// connection goes to a checked address, so a DNS answer that changes meanwhile (rebinding) changes nothing.
#[derive(Debug, Clone)]
pub(super) struct CheckedResolver(Arc<CheckedResolverInner>);

#[derive(Debug)]
struct CheckedResolverInner {
    resolver: Arc<dyn Resolver>,
    policy: AddressPolicy,
    is_encrypted: bool,
    cache: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<CachedAddresses>>>>>,
}

#[derive(Debug)]
struct CachedAddresses {
    at: Instant,
    addresses: Vec<IpAddr>,
}

impl CheckedResolver {
    pub fn new(resolver: Arc<dyn Resolver>, policy: AddressPolicy, is_encrypted: bool) -> Self {
        Self(Arc::new(CheckedResolverInner { resolver, policy, is_encrypted, cache: Mutex::default() }))
    }
}

impl CheckedResolverInner {
    async fn find(&self, name: &str) -> Result<Vec<IpAddr>, NoAddress> {
        let entry = self.cache_entry(name);
        // Of several callers for one name, one queries.
        let mut entry = entry.lock().await;
        if let Some(cache) = &*entry
            && cache.at.elapsed() < CACHE_TTL
        {
            return Ok(cache.addresses.clone());
        }
        *entry = None;
        let found = timeout(LOOKUP_TIMEOUT, self.resolver.resolve(name)).await;
        let addresses = found.map_err(|_| NoAddress)?.map_err(|_| NoAddress)?;
        if addresses.is_empty() || !addresses.iter().all(|ip| self.policy.allows(*ip, self.is_encrypted)) {
            return Err(NoAddress);
        }
        *entry = Some(CachedAddresses { at: Instant::now(), addresses: addresses.clone() });
        Ok(addresses)
    }

    fn cache_entry(&self, name: &str) -> Arc<tokio::sync::Mutex<Option<CachedAddresses>>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_CACHED_NAMES {
            cache.clear();
        }
        cache.entry(name.to_owned()).or_default().clone()
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let inner = self.0.clone();
        Box::pin(async move {
            let addresses = inner.find(name.as_str()).await?;
            // Port 0 stands for that of the URL.
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
    struct FixedResolver(&'static [&'static str], AtomicUsize);

    impl Resolver for FixedResolver {
        fn resolve<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
            self.1.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(self.0.iter().map(|ip| ip.parse().unwrap()).collect()) })
        }
    }

    async fn found(answer: &'static [&'static str], is_encrypted: bool) -> Option<usize> {
        let policy = AddressPolicy::new(["10.0.0.0/8".parse().unwrap()]);
        let checked = CheckedResolver::new(Arc::new(FixedResolver(answer, AtomicUsize::new(0))), policy, is_encrypted);
        checked.0.find("a.test").await.ok().map(|found| found.len())
    }

    #[tokio::test]
    async fn one_forbidden_address_refuses_the_name() {
        assert_eq!(found(&["1.1.1.1", "2606:4700::1"], true).await, Some(2));
        assert_eq!(found(&["1.1.1.1", "10.1.1.1"], true).await, Some(2));
        for answer in [&["1.1.1.1", "127.0.0.1"][..], &["::1", "1.1.1.1"], &["192.168.1.1"], &[]] {
            assert_eq!(found(answer, true).await, None, "{answer:?}");
        }
        assert_eq!(found(&["10.1.1.1"], false).await, Some(1));
        assert_eq!(found(&["10.1.1.1", "1.1.1.1"], false).await, None, "not without encryption");
    }

    #[tokio::test]
    async fn concurrent_lookups_of_a_name_are_one_query() {
        let resolver = Arc::new(FixedResolver(&["1.1.1.1"], AtomicUsize::new(0)));
        let checked = CheckedResolver::new(resolver.clone(), AddressPolicy::default(), true);
        let found = futures_util::future::join_all((0..16).map(|_| checked.0.find("a.test"))).await;
        assert!(found.iter().all(Result::is_ok));
        assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
    }
}
