//! Coordinates processes through Redis: which of them may try for a lease, and how much of a budget is left.
//!
//! It grants nothing. A process that may try still asks the database, and only the database's fence token counts. Redis
//! may be flushed, slow or unavailable at any moment: then every process may try, and each keeps to its own share of the
//! budgets.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::redact_for_log;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{IntoConnectionInfo, RedisError, Script, ScriptInvocation};
use tokio::time::{Instant, timeout};

use crate::budget::{BudgetWait, Charge};
use crate::sliding_window;

/// Longer than a healthy Redis takes, and negligible beside a call to a provider.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(50);

/// How often an unavailable Redis is tried again, so that not every call waits for it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// TCP user timeout: a server that was unplugged is silent; after this its connection counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Reserves a lease name. The holder itself may repeat it, which extends the reservation.
const RESERVE_SCRIPT: &str = "
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return 1";

const RELEASE_SCRIPT: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end
return 0";

/// The same as [`TokenBuckets::take`](crate::budget::TokenBuckets::take), in microseconds of Redis's clock.
const TAKE_SCRIPT: &str = "
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local function window_wait(key, room, amount, span, length)
    local slots, taken = {}, 0
    local held = redis.call('hgetall', key)
    for at = 1, #held, 2 do
        local back_at = (tonumber(held[at]) + 1) * length + span
        if back_at > now then
            slots[#slots + 1] = {back_at, tonumber(held[at + 1])}
            taken = taken + slots[#slots][2]
        else
            redis.call('hdel', key, held[at])
        end
    end
    table.sort(slots, function(a, b) return a[1] < b[1] end)
    local wait = 0
    for _, slot in ipairs(slots) do
        if taken + amount <= room then break end
        taken = taken - slot[2]
        wait = slot[1] - now
    end
    return wait
end
local wait, full_at = 0, {}
for i, key in ipairs(KEYS) do
    local room, cost = tonumber(ARGV[i * 4 - 2]), tonumber(ARGV[i * 4 - 1])
    local span, length = tonumber(ARGV[i * 4]), tonumber(ARGV[i * 4 + 1])
    if span > 0 then
        wait = math.max(wait, window_wait(key, room, cost, span, length))
    else
        full_at[i] = math.max(now, tonumber(redis.call('get', key) or now)) + cost
        wait = math.max(wait, full_at[i] - now - room)
    end
end
if wait > tonumber(ARGV[1]) then return {0, math.ceil(wait)} end
for i, key in ipairs(KEYS) do
    local cost, span, length = ARGV[i * 4 - 1], tonumber(ARGV[i * 4]), tonumber(ARGV[i * 4 + 1])
    if span > 0 then
        redis.call('hincrbyfloat', key, string.format('%.0f', math.floor((now + wait) / length)), cost)
        redis.call('pexpire', key, math.ceil((wait + span + length) / 1000))
    elseif full_at[i] > now then
        redis.call('set', key, string.format('%.0f', full_at[i]), 'px', math.ceil((full_at[i] - now) / 1000))
    end
end
return {1, math.ceil(wait)}";

/// Takes up to the wanted number of tokens from a bucket that fills evenly; all in microseconds of Redis's clock.
const LEASE_TOKENS_SCRIPT: &str = "
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local cost, room, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local used = math.max(now, tonumber(redis.call('get', KEYS[1]) or now)) - now
local there = math.max(0, math.floor((room - used) / cost))
local given = math.min(there, wanted)
if given > 0 then
    used = used + given * cost
    redis.call('set', KEYS[1], string.format('%.0f', now + used), 'px', math.ceil(used / 1000))
end
return {given, there - given, math.max(0, math.ceil(used + cost - room))}";

/// The tokens that [`Redis::lease_tokens`] took from a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasedTokens {
    pub given: u32,
    /// Tokens still in the bucket.
    pub left: u32,
    /// Time until the next token is there.
    pub wait: Duration,
}

/// A connection to Redis that is never waited for long. Cheap to clone.
#[derive(Clone)]
pub struct Redis {
    inner: Arc<RedisInner>,
    timeout_after: Duration,
}

struct RedisInner {
    connection: ConnectionManager,
    /// The prefix of all our keys: two Mailrooms at one Redis must not hold each other back.
    prefix: String,
    may_try: Script,
    release: Script,
    take: Script,
    lease_tokens: Script,
    away_until: Mutex<Option<Instant>>,
}

/// Omits the address, which may contain a password.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.inner.prefix).finish_non_exhaustive()
    }
}

impl Redis {
    /// Creates a lazy connection. Fails for an invalid address, not for a server that is unavailable. `prefix` is
    /// different for each database that Mailroom runs on.
    pub fn connect(url: &str, prefix: &str) -> Result<Self, RedisError> {
        let info = url.into_connection_info()?;
        let info = info.set_tcp_settings(TcpSettings::default().set_user_timeout(TCP_USER_TIMEOUT));
        // We retry ourselves: a connection that is being retried would make every caller wait.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(RETRY_INTERVAL))
            .set_response_timeout(None); // ours counts
        let connection = ConnectionManager::new_lazy_with_config(redis::Client::open(info)?, config)?;
        let inner = RedisInner {
            connection,
            prefix: prefix.to_owned(),
            may_try: Script::new(RESERVE_SCRIPT),
            release: Script::new(RELEASE_SCRIPT),
            take: Script::new(TAKE_SCRIPT),
            lease_tokens: Script::new(LEASE_TOKENS_SCRIPT),
            away_until: Mutex::new(None),
        };
        Ok(Self { inner: Arc::new(inner), timeout_after: ANSWER_TIMEOUT })
    }

    /// Sets how long to wait for an answer, in place of 50 ms.
    pub fn with_timeout(self, timeout_after: Duration) -> Self {
        Self { timeout_after, ..self }
    }

    /// Takes all charges or none. Returns `None` if Redis does not answer in time.
    pub async fn take(&self, charges: &[Charge], longest: Duration) -> Option<BudgetWait> {
        let mut call = self.inner.take.prepare_invoke();
        call.arg(micros(longest));
        for Charge { budget, amount, .. } in charges {
            match budget.span {
                None => {
                    call.arg(micros(budget.time_for(budget.burst))).arg(micros(budget.time_for(*amount))).arg(0).arg(0)
                }
                Some(span) => {
                    call.arg(sliding_window::limit_for(budget.burst, *amount)).arg(*amount);
                    call.arg(micros(span)).arg(micros(span / sliding_window::SLOTS))
                }
            };
        }
        for charge in charges {
            call.key(format!("{}:budget:{charge}", self.inner.prefix));
        }
        let (is_granted, wait): (u8, u64) = self.ask(&call).await?;
        let wait = Duration::from_micros(wait);
        Some(if is_granted == 1 { BudgetWait::After(wait) } else { BudgetWait::TooLong(wait) })
    }

    /// Takes up to `wanted` tokens from a bucket that all processes share and that holds `most`. Returns `None` if Redis
    /// does not answer in time.
    pub async fn lease_tokens(&self, bucket: &str, per_second: u32, most: u32, wanted: u32) -> Option<LeasedTokens> {
        let cost = 1_000_000.0 / f64::from(per_second.max(1));
        let mut call = self.inner.lease_tokens.key(format!("{}:tokens:{bucket}", self.inner.prefix));
        call.arg(cost).arg(cost * f64::from(most)).arg(wanted);
        let (given, left, wait): (u32, u32, u64) = self.ask(&call).await?;
        Some(LeasedTokens { given, left, wait: Duration::from_micros(wait) })
    }

    /// Reserves the name of a lease for a holder. Returns `false` only if another holder has it; in doubt `true`.
    pub async fn reserve_lease(&self, name: &str, holder: &str, lease: Duration) -> bool {
        let mut call = self.inner.may_try.key(self.gate(name));
        call.arg(holder).arg(lease.as_millis().max(1) as u64);
        self.ask(&call).await != Some(0)
    }

    /// Releases the name of a lease, if the holder has it.
    pub async fn release_lease(&self, name: &str, holder: &str) {
        let mut call = self.inner.release.key(self.gate(name));
        call.arg(holder);
        self.ask::<u8>(&call).await;
    }

    async fn ask<T: redis::FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Option<T> {
        let now = Instant::now();
        if self.away_until().is_some_and(|until| now < until) {
            return None;
        }
        let mut connection = self.inner.connection.clone();
        let error = match timeout(self.timeout_after, call.invoke_async(&mut connection)).await {
            Ok(Ok(answer)) => {
                if self.away_until().take().is_some() {
                    tracing::info!("Redis available again");
                }
                return Some(answer);
            }
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("no answer within {} ms", self.timeout_after.as_millis()),
        };
        if self.away_until().replace(now + RETRY_INTERVAL).is_none() {
            tracing::warn!(error = redact_for_log(&error), "Redis unavailable; continuing without it");
        }
        None
    }

    fn away_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.inner.away_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self, name: &str) -> String {
        format!("{}:gate:{name}", self.inner.prefix)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
