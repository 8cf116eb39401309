//! Every call to a provider goes through here: no sooner than the provider asked for, no more often than it allows, not at
//! all while it does not work, and never for ever.

pub mod breaker;
pub mod budget;
mod day;
pub mod meter;
mod places;
pub mod window;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::Answer;
use domain::{ConnectorError, Lane, MailboxId, Provider, Sha256, TenantId};
use jobs::{Dice, SystemDice};
use store::sql::mailboxes::Mailbox;
use store::{Store, StoreError};
use tokio::time::{Instant, sleep, timeout};

use breaker::{Breaker, PROBE_EVERY, Pass};
use budget::{Buckets, Budget, Charge, Measure, Owner, Place};
pub use day::bytes_per_day;
use meter::Meter;
use places::{Places, UnderWay};

use crate::gate::Redis;

/// How often what is of no use any more is forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// For waits that a provider made up.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[derive(Debug, Clone)]
pub struct CallSettings {
    /// Of providers without a line of their own in `paces`.
    pub pace: Pace,
    pub paces: HashMap<Provider, Pace>,
    /// Of each mailbox at an IMAP server that does not say it itself; 0: as many as one likes.
    pub imap_bytes_per_day: Option<u64>,
    /// Calls of one provider that are on their way at the same time: one that is slow, or gone, must not keep everybody
    /// waiting who could call another. Fetches are at most four fifths of them, those of old mail three.
    pub most_under_way: Option<usize>,
    /// A job that would wait longer for its turn gives its place to others and comes back.
    pub longest_wait: Duration,
    /// Connectors watch over the bytes of a message themselves; this ends what they did not think of.
    pub deadline: Duration,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            pace: Pace::calls_per_second(150.0),
            paces: HashMap::new(),
            imap_bytes_per_day: None,
            most_under_way: None,
            longest_wait: Duration::from_secs(5),
            deadline: Duration::from_secs(600),
        }
    }
}

impl CallSettings {
    pub fn pace_of(&self, provider: Provider) -> Pace {
        *self.paces.get(&provider).unwrap_or(&self.pace)
    }

    /// With what the mailbox has of its own.
    pub fn pace_for(&self, mailbox: &Mailbox) -> Pace {
        let mut pace = self.pace_of(mailbox.provider);
        if let Some(bytes) = bytes_per_day(mailbox, self.imap_bytes_per_day) {
            pace.mailbox.bytes = (bytes > 0).then(|| Budget::per_day(bytes as f64));
        }
        pace
    }
}

/// What may be asked of a provider by our app as a whole, for each tenant, with each credential, and for each mailbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    pub app: Allowance,
    pub tenant: Allowance,
    pub credential: Allowance,
    pub mailbox: Allowance,
}

/// `None`: as much as one likes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Allowance {
    pub calls: Option<Budget>,
    pub bytes: Option<Budget>,
    pub units: Option<Budget>,
}

impl Pace {
    pub fn calls_per_second(app: f64) -> Self {
        let app = Allowance { calls: Some(Budget::per_second(app)), ..Allowance::default() };
        Self { app, ..Self::default() }
    }

    /// And so many units a minute for our app as a whole, and for each mailbox.
    pub fn with_units(mut self, app: Option<Budget>, mailbox: Option<Budget>) -> Self {
        self.app.units = app;
        self.mailbox.units = mailbox;
        self
    }

    /// What a part of a call takes that has a price.
    fn unit_charges(&self, mailbox: &Mailbox, amount: f64) -> Vec<Charge> {
        // A provider does not know how many tenants have an account.
        let account = Sha256::of(format!("{} {}", mailbox.provider.as_str(), mailbox.account()).as_bytes());
        let owners = [(Owner::App(mailbox.provider), self.app), (Owner::Account(account), self.mailbox)];
        let charge = |(owner, allowance): (Owner, Allowance)| {
            let budget = allowance.units?;
            Some(Charge { owner, measure: Measure::Units, budget, amount })
        };
        owners.into_iter().filter_map(charge).collect()
    }

    /// What a call takes: all that have a budget.
    fn charges(&self, mailbox: &Mailbox, calls: f64, bytes: f64) -> Vec<Charge> {
        let owners = [
            (Owner::App(mailbox.provider), self.app),
            (Owner::Tenant(mailbox.tenant_id, mailbox.provider), self.tenant),
            (credential(mailbox), self.credential),
            (Owner::Mailbox(mailbox.id), self.mailbox),
        ];
        let of = |(owner, allowance): (Owner, Allowance)| {
            let charge = |measure, budget: Option<Budget>, amount| {
                budget.map(|budget| Charge { owner, measure, budget, amount })
            };
            [charge(Measure::Calls, allowance.calls, calls), charge(Measure::Bytes, allowance.bytes, bytes)]
        };
        owners.into_iter().flat_map(of).flatten().collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Brings few bytes, which nobody counts.
    Look,
    Fetch(Lane),
    /// The same as a look, at another of the provider's services.
    Directory,
}

/// One of them may be away while the other is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Service {
    Mail,
    Directory,
}

impl Call {
    fn service(self) -> Service {
        match self {
            Self::Look | Self::Fetch(_) => Service::Mail,
            Self::Directory => Service::Directory,
        }
    }
}

impl Service {
    fn of(self, provider: Provider) -> String {
        match self {
            Self::Mail => provider.as_str().to_owned(),
            Self::Directory => format!("the directory at {}", provider.as_str()),
        }
    }
}

/// Cheap to clone; clones are one.
#[derive(Debug, Clone)]
pub struct Calls {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: CallSettings,
    dice: Arc<dyn Dice>,
    /// Budgets are everybody's there.
    redis: Option<Redis>,
    /// How many share the budgets while Redis is away, or when there is none.
    instances: AtomicUsize,
    state: Mutex<State>,
    meter: Meter,
}

#[derive(Debug)]
struct State {
    breakers: HashMap<(TenantId, Provider, Service), Breaker>,
    /// Until when a provider asked to be left alone for the sake of a mailbox.
    quiet: HashMap<MailboxId, Instant>,
    buckets: Buckets,
    places: HashMap<Provider, Places>,
    tidied: Instant,
}

impl Default for Calls {
    fn default() -> Self {
        Self::new(CallSettings::default(), Arc::new(SystemDice), None)
    }
}

impl Calls {
    pub fn new(settings: CallSettings, dice: Arc<dyn Dice>, redis: Option<Redis>) -> Self {
        let state = State {
            breakers: HashMap::new(),
            quiet: HashMap::new(),
            buckets: Buckets::default(),
            places: HashMap::new(),
            tidied: Instant::now(),
        };
        let (instances, state, meter) = (AtomicUsize::new(1), Mutex::new(state), Meter::default());
        let inner = Inner { settings, dice, redis, instances, state, meter };
        Self { inner: Arc::new(inner) }
    }

    /// How many processes make calls, as far as is known.
    pub fn set_instances(&self, count: usize) {
        self.inner.instances.store(count.max(1), Ordering::Relaxed);
    }

    /// Makes the call when its turn comes, or says at once for how long it is of no use.
    pub async fn make<T>(&self, mailbox: &Mailbox, call: Answer<'_, T>) -> Result<T, ConnectorError> {
        self.make_a(Call::Look, mailbox, call).await
    }

    /// The same for a call that brings messages: it also waits until those that came before are paid for. In the low lane
    /// are messages that were there before.
    pub async fn make_fetch<T>(&self, mailbox: &Mailbox, lane: Lane, call: Answer<'_, T>) -> Result<T, ConnectorError> {
        self.make_a(Call::Fetch(lane), mailbox, call).await
    }

    /// The same for a call to a tenant's directory.
    pub async fn ask_directory<T>(&self, counted_as: &Mailbox, call: Answer<'_, T>) -> Result<T, ConnectorError> {
        self.make_a(Call::Directory, counted_as, call).await
    }

    async fn make_a<T>(&self, kind: Call, mailbox: &Mailbox, call: Answer<'_, T>) -> Result<T, ConnectorError> {
        self.inner.look(kind, mailbox)?;
        self.inner.wait_for_turn(kind, mailbox).await?;
        let (_under_way, pass) = self.inner.begin(kind, mailbox)?;
        self.inner.meter.count(key(mailbox), 1, 0);
        let deadline = self.inner.settings.deadline;
        let outcome = match timeout(deadline, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ConnectorError::Unavailable(format!("no answer within {} s", deadline.as_secs()))),
        };
        self.inner.end(kind, mailbox, pass, outcome.as_ref().err());
        outcome
    }

    /// Waits until so many units of the provider's quota may be used; in the middle of a call, which made its way already.
    pub async fn spend_units(&self, mailbox: &Mailbox, units: u32) -> Result<(), ConnectorError> {
        let charges = self.inner.pace(mailbox).unit_charges(mailbox, f64::from(units));
        self.inner.wait_for(&charges).await
    }

    /// What a call has brought. Too much is not refused: it came already. The next fetches wait for it.
    pub async fn spend_bytes(&self, mailbox: &Mailbox, bytes: u64) {
        self.inner.meter.count(key(mailbox), 0, bytes);
        let mut charges = self.inner.pace(mailbox).charges(mailbox, 0.0, bytes as f64);
        charges.retain(|charge| charge.amount > 0.0);
        self.inner.take(&charges, YEAR).await;
    }

    /// Whether fetches wait until what came before is paid for.
    pub async fn owes_bytes(&self, mailbox: &Mailbox) -> bool {
        let mut charges = self.inner.pace(mailbox).charges(mailbox, 0.0, 0.0);
        charges.retain(|charge| charge.measure == Measure::Bytes);
        matches!(self.inner.take(&charges, Duration::ZERO).await, Place::TooLong(_))
    }

    /// What was used since the last time, for people.
    pub async fn write_usage(&self, store: &Store) -> Result<(), StoreError> {
        self.inner.meter.write(store).await
    }

    /// Why calls for a mailbox are refused that has to wait for long, in words for people.
    pub fn why(&self, mailbox: &Mailbox) -> &'static str {
        if self.inner.state().is_welcome(mailbox, Instant::now()).is_err() {
            return "its server asked to wait";
        }
        let charges = self.inner.pace(mailbox).charges(mailbox, 1.0, 0.0);
        match charges.iter().any(|charge| charge.measure == Measure::Bytes) {
            // A debt: of calls nobody ever has one.
            true => "it has fetched as many bytes as it may in a day",
            false => "it has been called as often as it may be",
        }
    }
}

impl Inner {
    fn pace(&self, mailbox: &Mailbox) -> Pace {
        self.settings.pace_for(mailbox)
    }

    /// Whether there is any use in waiting for a turn. Takes nothing: neither a probe nor a turn must be spent on a call that
    /// is not made, and who waited for the turn of its own tenant with a place would keep it from other tenants.
    fn look(&self, kind: Call, mailbox: &Mailbox) -> Result<(), ConnectorError> {
        let now = Instant::now();
        let mut state = self.state();
        state.tidy(now);
        if let Some(breaker) = state.breakers.get(&whose(kind, mailbox)) {
            breaker.look(now).map_err(|until| self.not_before(until, now))?;
        }
        state.is_welcome(mailbox, now)?;
        match state.places(mailbox.provider, &self.settings) {
            Some(places) if places.take(kind).is_none() => Err(self.no_place()),
            _ => Ok(()),
        }
    }

    async fn wait_for_turn(&self, kind: Call, mailbox: &Mailbox) -> Result<(), ConnectorError> {
        let mut charges = self.pace(mailbox).charges(mailbox, 1.0, 0.0);
        if !matches!(kind, Call::Fetch(_)) {
            charges.retain(|charge| charge.measure == Measure::Calls);
        }
        self.wait_for(&charges).await
    }

    async fn wait_for(&self, charges: &[Charge]) -> Result<(), ConnectorError> {
        match self.take(charges, self.settings.longest_wait).await {
            Place::In(wait) => {
                sleep(wait).await;
                Ok(())
            }
            Place::TooLong(wait) => Err(ConnectorError::NotYet(self.spread(wait, self.settings.longest_wait))),
        }
    }

    async fn take(&self, charges: &[Charge], longest: Duration) -> Place {
        if charges.is_empty() {
            return Place::In(Duration::ZERO);
        }
        // What is more than ever comes at once would never be let in: that it takes its time is nobody's fault.
        let patience = |charges: &[Charge]| {
            let least = charges.iter().map(|charge| charge.budget.least_wait(charge.amount)).max();
            longest.saturating_add(least.unwrap_or_default())
        };
        if let Some(redis) = &self.redis {
            let charges: Vec<Charge> = charges.iter().map(|charge| charge.evened()).collect();
            if let Some(place) = redis.take(&charges, patience(&charges)).await {
                return place;
            }
        }
        let instances = self.instances.load(Ordering::Relaxed);
        let share = |charge: &Charge| Charge { budget: charge.budget.share(instances), ..*charge }.evened();
        let charges: Vec<Charge> = charges.iter().map(share).collect();
        self.state().buckets.take(&charges, Instant::now(), patience(&charges))
    }

    /// With a place among those that are under way, which is given back when it is dropped.
    fn begin(&self, kind: Call, mailbox: &Mailbox) -> Result<(Option<UnderWay>, Pass), ConnectorError> {
        let now = Instant::now();
        let mut state = self.state();
        // Others were told something while this one waited.
        state.is_welcome(mailbox, now)?;
        let places = state.places(mailbox.provider, &self.settings);
        let place = places.map(|places| places.take(kind).ok_or_else(|| self.no_place())).transpose()?;
        let taken = state.breaker(kind, mailbox, now).take(now);
        Ok((place, taken.map_err(|until| self.not_before(until, now))?))
    }

    fn end(&self, kind: Call, mailbox: &Mailbox, pass: Pass, error: Option<&ConnectorError>) {
        let now = Instant::now();
        let provider = mailbox.provider.as_str();
        let (word, is_failure) = verdict(error);
        metrics::counter!("mailroom_provider_requests_total", "provider" => provider, "outcome" => word).increment(1);
        let mut state = self.state();
        if let Some(ConnectorError::Throttled { retry_after: Some(wait) }) = error {
            let until = now + (*wait).min(YEAR);
            let quiet = state.quiet.entry(mailbox.id).or_insert(until);
            *quiet = until.max(*quiet);
        }
        let Some(is_failure) = is_failure else { return };
        let breaker = state.breaker(kind, mailbox, now);
        let before = breaker.state();
        breaker.record(now, pass, is_failure);
        let after = breaker.state();
        if before != after {
            let who = kind.service().of(mailbox.provider);
            match after {
                "open" => tracing::warn!(tenant = %mailbox.tenant_id, "{who} does not work: its breaker is open"),
                _ => tracing::info!(tenant = %mailbox.tenant_id, "{who} answers: its breaker is {after}"),
            }
            count_breakers(provider, before, -1.0);
            count_breakers(provider, after, 1.0);
        }
    }

    /// Those who are refused together do not come back together; one of them comes in time.
    fn not_before(&self, until: Instant, now: Instant) -> ConnectorError {
        ConnectorError::NotYet(self.spread(until - now, PROBE_EVERY / 10))
    }

    /// As many as may be are under way.
    fn no_place(&self) -> ConnectorError {
        let wait = self.settings.longest_wait;
        ConnectorError::NotYet(self.spread(wait, wait))
    }

    fn spread(&self, wait: Duration, over: Duration) -> Duration {
        wait + over.mul_f64(self.dice.fraction())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing in there is ever half done for longer than a statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn breaker(&mut self, kind: Call, mailbox: &Mailbox, now: Instant) -> &mut Breaker {
        self.breakers.entry(whose(kind, mailbox)).or_insert_with(|| {
            let breaker = Breaker::new(now);
            count_breakers(mailbox.provider.as_str(), breaker.state(), 1.0);
            breaker
        })
    }

    /// `None`: there may be as many as one likes.
    fn places(&mut self, provider: Provider, settings: &CallSettings) -> Option<&Places> {
        let most = settings.most_under_way?;
        Some(self.places.entry(provider).or_insert_with(|| Places::new(most)))
    }

    /// To the moment: this is the provider's word.
    fn is_welcome(&self, mailbox: &Mailbox, now: Instant) -> Result<(), ConnectorError> {
        match self.quiet.get(&mailbox.id) {
            Some(until) if *until > now => Err(throttled(*until - now)),
            _ => Ok(()),
        }
    }

    fn tidy(&mut self, now: Instant) {
        if now.duration_since(self.tidied) < TIDY_EVERY {
            return;
        }
        self.tidied = now;
        self.quiet.retain(|_, until| *until > now);
        self.buckets.forget_full(now);
        self.breakers.retain(|(_, provider, _), breaker| {
            let is_idle = breaker.is_idle(now);
            if is_idle {
                count_breakers(provider.as_str(), breaker.state(), -1.0);
            }
            !is_idle
        });
    }
}

fn key(mailbox: &Mailbox) -> (TenantId, Provider) {
    (mailbox.tenant_id, mailbox.provider)
}

fn whose(kind: Call, mailbox: &Mailbox) -> (TenantId, Provider, Service) {
    (mailbox.tenant_id, mailbox.provider, kind.service())
}

fn credential(mailbox: &Mailbox) -> Owner {
    let own = mailbox.secret_ref.as_ref().and_then(|secret| secret.parse().ok());
    Owner::Credential(mailbox.tenant_id, mailbox.provider, own)
}

fn throttled(wait: Duration) -> ConnectorError {
    ConnectorError::Throttled { retry_after: Some(wait) }
}

fn count_breakers(provider: &'static str, state: &'static str, by: f64) {
    metrics::gauge!("mailroom_breakers", "provider" => provider, "state" => state).increment(by);
}

/// A word for people, and whether it is a failure: a refusal is an answer, so the provider works. Being told to wait
/// says neither.
fn verdict(error: Option<&ConnectorError>) -> (&'static str, Option<bool>) {
    match error {
        None => ("ok", Some(false)),
        Some(ConnectorError::Throttled { .. }) => ("throttled", None),
        Some(ConnectorError::NotYet(_)) => ("put_off", None),
        Some(ConnectorError::Unavailable(_)) => ("unavailable", Some(true)),
        Some(ConnectorError::Unauthorized(_)) => ("unauthorized", Some(false)),
        Some(ConnectorError::Operator(_)) => ("operator", Some(false)),
        Some(ConnectorError::CursorExpired) => ("cursor_expired", Some(false)),
        Some(ConnectorError::Gone) => ("gone", Some(false)),
        Some(ConnectorError::Shut(_)) => ("shut", Some(false)),
        Some(ConnectorError::Protocol(_)) => ("protocol", Some(false)),
    }
}

#[cfg(test)]
mod tests;
