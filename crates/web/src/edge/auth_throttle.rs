//! Throttles addresses that send wrong API keys: above a rate they are refused without a query to the database.
//!
//! Keys are random and cannot be guessed; this is about the load. Many people may share an address, so a key that was
//! valid from there within the last minutes still passes.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{PlanTier, Sha256, TenantId};
use outbound::budget::Budget;
use outbound::limits::{Limit, count_refusal};
use outbound::token_bucket::TokenBucket;
use tokio::time::Instant;

/// How long a valid key passes the throttle of its address.
const VALID_KEY_TTL: Duration = Duration::from_secs(600);

/// Entries per map, some hundred bytes each. An attacker with more addresses than this gets as many attempts anyway.
const MAX_ENTRIES: usize = 20_000;

#[derive(Debug)]
pub(crate) struct AuthThrottle {
    /// Failed attempts of an address.
    budget: Budget,
    state: Mutex<ThrottleState>,
}

#[derive(Debug, Default)]
struct ThrottleState {
    wrong: HashMap<IpAddr, TokenBucket>,
    good: HashMap<(IpAddr, Sha256), ValidKey>,
}

/// Owner of a key when it was last valid. Never grants access: it only lets a request be refused earlier.
#[derive(Debug, Clone, Copy)]
struct ValidKey {
    tenant: Option<(TenantId, PlanTier)>,
    at: Instant,
}

/// What is known of a key before the database is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHistory {
    Unknown,
    /// The key was valid within the last minutes: a tenant's, or (`None`) the operator's.
    RecentlyValid(Option<(TenantId, PlanTier)>),
    /// Too many wrong keys came from this address; with the time until the next attempt.
    Throttled(Duration),
}

impl AuthThrottle {
    pub fn new(max_per_minute: usize) -> Self {
        let burst = max_per_minute as f64;
        Self { budget: Budget { burst, ..Budget::per_second(burst / 60.0) }, state: Mutex::default() }
    }

    pub fn check(&self, address: IpAddr, key: Sha256) -> KeyHistory {
        let (now, address, state) = (Instant::now(), client_network(address), self.state());
        if let Some(good) = state.good.get(&(address, key)).filter(|good| now - good.at < VALID_KEY_TTL) {
            return KeyHistory::RecentlyValid(good.tenant);
        }
        let wait = state.wrong.get(&address).map(|wrong| wrong.wait(self.budget, 1.0, now));
        match wait.filter(|wait| !wait.is_zero()) {
            Some(wait) => {
                count_refusal(Limit::WrongKeys);
                KeyHistory::Throttled(wait)
            }
            None => KeyHistory::Unknown,
        }
    }

    pub fn record_success(&self, address: IpAddr, key: Sha256, tenant: Option<(TenantId, PlanTier)>) {
        let (at, mut state) = (Instant::now(), self.state());
        evict(&mut state.good, |good| at - good.at < VALID_KEY_TTL);
        state.good.insert((client_network(address), key), ValidKey { tenant, at });
    }

    pub fn record_failure(&self, address: IpAddr, key: Sha256) {
        let (now, address, mut state) = (Instant::now(), client_network(address), self.state());
        state.good.remove(&(address, key));
        if !state.wrong.contains_key(&address) {
            evict(&mut state.wrong, |wrong| !wrong.is_full(now));
        }
        state.wrong.entry(address).or_insert_with(|| TokenBucket::full(now)).take(self.budget, 1.0, now);
    }

    fn state(&self) -> MutexGuard<'_, ThrottleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Evicts expired entries from a full map, and an arbitrary half of them if none has expired.
fn evict<K: Clone + Eq + Hash, V>(map: &mut HashMap<K, V>, is_young: impl Fn(&V) -> bool) {
    if map.len() < MAX_ENTRIES {
        return;
    }
    map.retain(|_, value| is_young(value));
    if map.len() >= MAX_ENTRIES {
        let mut stays = false;
        map.retain(|_, _| {
            stays = !stays;
            stays
        });
    }
}

/// Returns the address itself, or the /64 of an IPv6 address: that is what one customer has at least.
fn client_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn key(number: usize) -> Sha256 {
        Sha256::of(&number.to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn address_with_many_wrong_keys_has_to_wait() {
        let throttle = AuthThrottle::new(20);
        for number in 0..20 {
            assert_eq!(throttle.check(HERE, key(number)), KeyHistory::Unknown);
            throttle.record_failure(HERE, key(number));
        }

        let KeyHistory::Throttled(wait) = throttle.check(HERE, key(99)) else { panic!() };
        assert_eq!(wait, Duration::from_secs(3));
        assert_eq!(throttle.check("192.0.2.2".parse().unwrap(), key(99)), KeyHistory::Unknown);
        tokio::time::advance(wait).await;
        assert_eq!(throttle.check(HERE, key(99)), KeyHistory::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn valid_key_passes_a_throttled_address() {
        let throttle = AuthThrottle::new(3);
        throttle.record_success(HERE, key(0), None);
        (1..9).for_each(|number| throttle.record_failure(HERE, key(number)));

        assert_eq!(throttle.check(HERE, key(0)), KeyHistory::RecentlyValid(None));
        assert!(matches!(throttle.check(HERE, key(1)), KeyHistory::Throttled(_)));
        throttle.record_failure(HERE, key(0));
        assert!(matches!(throttle.check(HERE, key(0)), KeyHistory::Throttled(_)), "it was revoked");
        throttle.record_success(HERE, key(5), None);
        tokio::time::advance(VALID_KEY_TTL).await;
        assert_eq!(throttle.check(HERE, key(5)), KeyHistory::Unknown, "all wait has run out, too");
    }

    #[tokio::test(start_paused = true)]
    async fn ipv6_network_is_one_address_and_memory_is_bounded() {
        let throttle = AuthThrottle::new(3);
        for number in 0..4_u128 {
            throttle.record_failure(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | number)), key(1));
        }
        assert!(matches!(throttle.check("2001:db8::ffff".parse().unwrap(), key(2)), KeyHistory::Throttled(_)));
        assert_eq!(throttle.check("2001:db8:0:1::1".parse().unwrap(), key(2)), KeyHistory::Unknown);

        for number in 0..3 * MAX_ENTRIES {
            let address = IpAddr::V4((number as u32).into());
            throttle.record_failure(address, key(number));
            throttle.record_success(address, key(number), None);
        }
        let state = throttle.state();
        assert!(state.wrong.len() <= MAX_ENTRIES && state.good.len() <= MAX_ENTRIES);
    }
}
