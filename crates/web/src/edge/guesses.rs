//! Who sends wrong keys again and again is not asked about any more, for a while: each costs a look into the database.
//!
//! Keys are random, so nobody guesses one; this is about the load. Many may share an address, so a key that was good
//! from there a short while ago passes.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{PlanTier, Sha256, TenantId};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// For how long a key that was good counts as known.
const KNOWN_FOR: Duration = Duration::from_secs(600);

/// Addresses, and keys, that are remembered: some hundred bytes each. Whoever has more addresses than this has as many
/// tries as that anyway.
const REMEMBERED: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Guesses {
    /// Wrong ones in a minute.
    most: f64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    wrong: HashMap<IpAddr, Wrong>,
    good: HashMap<(IpAddr, Sha256), Good>,
}

/// A bucket: each wrong key adds one, and they run out evenly.
#[derive(Debug, Clone, Copy)]
struct Wrong {
    count: f64,
    at: Instant,
}

/// Whose a key was when it was last seen. Never a reason to let somebody in, only to tell sooner who is not.
#[derive(Debug, Clone, Copy)]
struct Good {
    tenant: Option<(TenantId, PlanTier)>,
    at: Instant,
}

/// What is known of a key before anybody is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    Nothing,
    /// It was good a short while ago; of a tenant, or the operator's.
    Good(Option<(TenantId, PlanTier)>),
    /// Too many wrong ones came from there.
    TooMany(Duration),
}

impl Guesses {
    pub fn new(most: usize) -> Self {
        Self { most: most as f64, kept: Mutex::default() }
    }

    pub fn look(&self, address: IpAddr, key: Sha256) -> Known {
        let (now, address, mut kept) = (Instant::now(), neighbourhood(address), self.kept());
        if let Some(good) = kept.good.get(&(address, key)).filter(|good| now - good.at < KNOWN_FOR) {
            return Known::Good(good.tenant);
        }
        let Some(wrong) = kept.wrong.get_mut(&address) else { return Known::Nothing };
        wrong.run_out(now, self.most);
        if wrong.count + 1.0 <= self.most {
            return Known::Nothing;
        }
        let seconds = (wrong.count + 1.0 - self.most) * MINUTE.as_secs_f64() / self.most;
        Known::TooMany(Duration::from_secs_f64(seconds))
    }

    pub fn was_good(&self, address: IpAddr, key: Sha256, tenant: Option<(TenantId, PlanTier)>) {
        let (at, mut kept) = (Instant::now(), self.kept());
        make_room(&mut kept.good, |good| at - good.at < KNOWN_FOR);
        kept.good.insert((neighbourhood(address), key), Good { tenant, at });
    }

    pub fn was_wrong(&self, address: IpAddr, key: Sha256) {
        let (now, address, mut kept) = (Instant::now(), neighbourhood(address), self.kept());
        kept.good.remove(&(address, key));
        if !kept.wrong.contains_key(&address) {
            make_room(&mut kept.wrong, |wrong| now - wrong.at < MINUTE);
        }
        let wrong = kept.wrong.entry(address).or_insert(Wrong { count: 0.0, at: now });
        wrong.run_out(now, self.most);
        wrong.count += 1.0;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wrong {
    fn run_out(&mut self, now: Instant, most: f64) {
        let gone = (now - self.at).as_secs_f64() * most / MINUTE.as_secs_f64();
        self.count = (self.count - gone).max(0.0);
        self.at = now;
    }
}

/// By age; and when all are young, any half of them.
fn make_room<K: Clone + Eq + Hash, V>(map: &mut HashMap<K, V>, is_young: impl Fn(&V) -> bool) {
    if map.len() < REMEMBERED {
        return;
    }
    map.retain(|_, value| is_young(value));
    if map.len() >= REMEMBERED {
        let mut stays = false;
        map.retain(|_, _| {
            stays = !stays;
            stays
        });
    }
}

/// An IPv6 customer has a /64 at least.
fn neighbourhood(address: IpAddr) -> IpAddr {
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
    async fn after_so_many_wrong_keys_an_address_waits_and_then_may_try_again() {
        let guesses = Guesses::new(20);
        for number in 0..20 {
            assert_eq!(guesses.look(HERE, key(number)), Known::Nothing);
            guesses.was_wrong(HERE, key(number));
        }

        let Known::TooMany(wait) = guesses.look(HERE, key(99)) else { panic!() };
        assert_eq!(wait, Duration::from_secs(3));
        assert_eq!(guesses.look("192.0.2.2".parse().unwrap(), key(99)), Known::Nothing);
        tokio::time::advance(wait).await;
        assert_eq!(guesses.look(HERE, key(99)), Known::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_good_key_passes_where_others_send_wrong_ones() {
        let guesses = Guesses::new(3);
        guesses.was_good(HERE, key(0), None);
        (1..9).for_each(|number| guesses.was_wrong(HERE, key(number)));

        assert_eq!(guesses.look(HERE, key(0)), Known::Good(None));
        assert!(matches!(guesses.look(HERE, key(1)), Known::TooMany(_)));
        guesses.was_wrong(HERE, key(0));
        assert!(matches!(guesses.look(HERE, key(0)), Known::TooMany(_)), "it was revoked");
        guesses.was_good(HERE, key(5), None);
        tokio::time::advance(KNOWN_FOR).await;
        assert_eq!(guesses.look(HERE, key(5)), Known::Nothing, "all wait has run out, too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_of_ipv6_is_one_address_and_many_do_not_fill_the_memory() {
        let guesses = Guesses::new(3);
        for number in 0..4_u128 {
            guesses.was_wrong(IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | number)), key(1));
        }
        assert!(matches!(guesses.look("2001:db8::ffff".parse().unwrap(), key(2)), Known::TooMany(_)));
        assert_eq!(guesses.look("2001:db8:0:1::1".parse().unwrap(), key(2)), Known::Nothing);

        for number in 0..3 * REMEMBERED {
            let address = IpAddr::V4((number as u32).into());
            guesses.was_wrong(address, key(number));
            guesses.was_good(address, key(number), None);
        }
        let kept = guesses.kept();
        assert!(kept.wrong.len() <= REMEMBERED && kept.good.len() <= REMEMBERED);
    }
}
