//! The table of all limits of a process: what each allows, and whose it is. `mailroom limits show` prints it, and the
//! metrics `mailroom_limit_…` name its rows.

use domain::metrics as catalogue;
use domain::{PlanTier, Provider};

use crate::breaker;
use crate::budget::Budget;
use crate::call_scopes::server_limits;
use crate::call_settings::{Allowance, CallBudgets, CallSettings};
use crate::rate_limiter::Rate;

/// Requests to webhooks in flight. Each is small, and one that hangs ends after 15 s.
pub const MAX_WEBHOOK_REQUESTS: usize = 1024;

/// Connections that wait for news with IDLE: one for each mailbox, and they cost the server little. They are kept far
/// below the open files that a process may have.
pub const MAX_IDLE_CONNECTIONS: usize = 40_000;

/// IMAP connections for calls, to one server.
pub const MAX_IMAP_CONNECTIONS_PER_SERVER: usize = 200;

/// IMAP connections in use by the calls of one mailbox. Servers limit the connections of one user; many allow ten, some
/// fewer.
pub const MAX_IMAP_CONNECTIONS_PER_MAILBOX: usize = 4;

/// Microsoft serves four requests of a mailbox at once and rejects a fifth.
pub const MAX_OUTLOOK_REQUESTS_PER_MAILBOX: usize = 4;

/// Calls for tokens at the same time: enough for a start with thousands of mailboxes, few enough to stop when the first
/// of them is rejected.
pub const MAX_TOKEN_CALLS: usize = 8;

/// Notifications of a provider that wait for the database at once, of some hundred bytes each. At a thousand per second
/// this is four times what comes within the deadline of a provider that has one.
pub const MAX_WAITING_NOTIFICATIONS: usize = 10_000;

/// Fetched messages in memory, until they are committed.
pub const MAX_BYTES_IN_FLIGHT: u64 = 36 << 20;

/// The part of it that is a provider's own, and the most that is reserved at once.
pub const PROVIDER_RESERVE_BYTES: u64 = 4 << 20;

/// The size of a bucket of requests, in seconds of its rate.
pub const RATE_BURST_SECONDS: u32 = 2;

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    CircuitBreaker,
    RetryAfter,
    Calls,
    Bytes,
    QuotaUnits,
    CallsInFlight,
    Deadline,
    IdleConnections,
    Connections,
    MailboxRequests,
    TokenCalls,
    Jobs,
    PollJobs,
    Polls,
    FetchBatches,
    Memory,
    Discoveries,
    Requests,
    RequestsInFlight,
    Streams,
    Notifications,
    WrongKeys,
}

impl Limit {
    /// Returns the label of the limit in metrics.
    pub fn as_str(self) -> &'static str {
        self.names().0
    }

    /// Returns the name of the limit, for people.
    pub fn title(self) -> &'static str {
        self.names().1
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::CircuitBreaker => ("circuit_breaker", "circuit breaker"),
            Self::RetryAfter => ("retry_after", "Retry-After"),
            Self::Calls => ("calls", "calls"),
            Self::Bytes => ("bytes", "bytes"),
            Self::QuotaUnits => ("quota_units", "quota units"),
            Self::CallsInFlight => ("calls_in_flight", "calls in flight"),
            Self::Deadline => ("deadline", "deadline"),
            Self::IdleConnections => ("idle_connections", "connections in IDLE"),
            Self::Connections => ("connections", "connections"),
            Self::MailboxRequests => ("mailbox_requests", "requests of a mailbox"),
            Self::TokenCalls => ("token_calls", "calls for tokens"),
            Self::Jobs => ("jobs", "running jobs"),
            Self::PollJobs => ("poll_jobs", "poll jobs"),
            Self::Polls => ("polls", "polls"),
            Self::FetchBatches => ("fetch_batches", "batches being fetched"),
            Self::Memory => ("memory", "memory of fetched mail"),
            Self::Discoveries => ("discoveries", "discoveries"),
            Self::Requests => ("requests", "requests"),
            Self::RequestsInFlight => ("requests_in_flight", "requests in flight"),
            Self::Streams => ("streams", "downloads and event streams"),
            Self::Notifications => ("notifications", "notifications being recorded"),
            Self::WrongKeys => ("wrong_keys", "wrong keys"),
        }
    }
}

/// Counts something that a limit has put off or refused.
pub fn count_refusal(limit: Limit) {
    metrics::counter!(catalogue::LIMIT_REFUSALS, "limit" => limit.as_str()).increment(1);
}

/// Counts permits of a limit that are taken, or given back if `change` is negative.
pub fn count_in_use(limit: Limit, change: f64) {
    metrics::gauge!(catalogue::LIMIT_PERMITS, "limit" => limit.as_str()).increment(change);
}

/// All limits of a process, as they are configured.
#[derive(Debug, Clone)]
pub struct Limits {
    pub calls: CallSettings,
    pub work: WorkLimits,
    pub requests: RequestLimits,
}

/// Our own work.
#[derive(Debug, Clone, Copy)]
pub struct WorkLimits {
    /// Jobs that work on mailboxes.
    pub mailbox_workers: usize,
    /// Other jobs that wait for the database or the network.
    pub jobs: usize,
    pub discoveries: usize,
}

/// Requests to the API.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    /// Concurrent requests, until their responses start.
    pub in_flight: usize,
    /// Concurrent long responses: event streams and large downloads.
    pub streams: usize,
    pub per_second: PlanRates,
    /// Wrong keys per minute and address before it is throttled.
    pub wrong_keys: usize,
}

/// Requests per second of one tenant, by plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanRates {
    pub standard: usize,
    pub vip: usize,
}

/// The defaults of `config/default.toml`, which has the reasons.
impl Default for RequestLimits {
    fn default() -> Self {
        Self { in_flight: 256, streams: 10_000, per_second: PlanRates { standard: 100, vip: 1000 }, wrong_keys: 20 }
    }
}

impl PlanRates {
    /// Returns the rate of a plan. A bucket holds the requests of two seconds.
    pub fn of(self, plan: PlanTier) -> Rate {
        let per_second = match plan {
            PlanTier::Standard => self.standard,
            PlanTier::Vip => self.vip,
        };
        let most = u32::MAX / RATE_BURST_SECONDS;
        let per_second = u32::try_from(per_second).unwrap_or(most).clamp(1, most);
        Rate { per_second, burst: per_second * RATE_BURST_SECONDS }
    }
}

impl RequestLimits {
    /// Returns the most requests of one tenant in flight, so that it leaves most of the server to others.
    pub fn tenant_in_flight(&self) -> usize {
        self.in_flight.div_ceil(4)
    }

    pub fn tenant_streams(&self) -> usize {
        self.streams.div_ceil(2)
    }

    /// Returns the most connections of clients: idle ones may be open besides those with a request.
    pub fn connections(&self) -> usize {
        self.streams + 4 * self.in_flight
    }
}

/// Poll jobs that run or wait, and polls that run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollLimits {
    pub jobs: usize,
    /// The limit of jobs that holds for the first job of a tenant.
    pub first_jobs: usize,
    pub polls: usize,
    pub tenant_jobs: usize,
    pub tenant_polls: usize,
}

impl PollLimits {
    /// Returns the limits of each provider in a process that works on so many mailboxes at the same time. A provider has at
    /// most two fifths of the jobs and half of the polls, and a tenant at most a tenth of those jobs and two fifths of those
    /// polls, however many mailboxes are due. A few more jobs are admitted that are the first of their tenants, so that
    /// tenants with many jobs do not delay them.
    pub fn for_workers(workers: usize) -> Self {
        let (jobs, polls) = ((workers * 2 / 5).max(1), (workers / 2).max(1));
        Self {
            jobs,
            first_jobs: (workers * 9 / 20).max(1),
            polls,
            tenant_jobs: (jobs / 10).max(1),
            tenant_polls: (polls * 2 / 5).max(1),
        }
    }
}

/// One limit, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRow {
    pub limit: &'static str,
    /// What has one of its own.
    pub of: String,
    pub allows: String,
}

impl Limits {
    /// Lists all limits: of calls in the order in which a call meets them, then of our own work, then of requests to us.
    pub fn rows(&self) -> Vec<LimitRow> {
        let mut rows = self.calls.rows();
        rows.extend(self.work.rows());
        rows.extend(self.requests.rows());
        rows
    }
}

impl CallSettings {
    fn rows(&self) -> Vec<LimitRow> {
        let mut rows = vec![
            row(Limit::CircuitBreaker, "tenant and provider; IMAP and webhooks: tenant and server", breaker_text()),
            row(Limit::RetryAfter, "mailbox; webhook", "as its server says"),
        ];
        for provider in remote_providers() {
            rows.extend(self.budgets_of_provider(provider).rows(provider));
        }
        rows.extend(remote_providers().flat_map(|provider| self.mailbox_quotas(provider)));
        rows.push(row(Limit::Bytes, "mailbox that sets bytes_per_day, or whose tenant does", "what it sets"));
        if let Some(max) = self.max_in_flight {
            rows.push(row(Limit::CallsInFlight, "provider", max));
            rows.extend(server_rows(Limit::CallsInFlight, "IMAP server", max));
        }
        rows.push(row(Limit::CallsInFlight, "webhooks", MAX_WEBHOOK_REQUESTS));
        rows.extend(server_rows(Limit::CallsInFlight, "webhook server", MAX_WEBHOOK_REQUESTS));
        rows.extend([
            row(Limit::MailboxRequests, "outlook", MAX_OUTLOOK_REQUESTS_PER_MAILBOX),
            row(Limit::MailboxRequests, "imap", MAX_IMAP_CONNECTIONS_PER_MAILBOX),
            row(Limit::TokenCalls, "provider", MAX_TOKEN_CALLS),
            row(Limit::Deadline, "call", format!("{} s", self.deadline.as_secs())),
            row(Limit::Connections, "IMAP server", MAX_IMAP_CONNECTIONS_PER_SERVER),
            row(Limit::IdleConnections, "process", MAX_IDLE_CONNECTIONS),
        ]);
        rows.extend(server_rows(Limit::IdleConnections, "IMAP server", MAX_IDLE_CONNECTIONS));
        rows
    }
}

impl CallSettings {
    /// Lists the daily quotas of bytes of a mailbox: what is configured, else what some servers are known to allow.
    fn mailbox_quotas(&self, provider: Provider) -> Vec<LimitRow> {
        let of = format!("{}, mailbox", provider.as_str());
        match self.mailbox_bytes_per_day.get(&provider) {
            Some(0) => Vec::new(),
            Some(bytes) => vec![row(Limit::Bytes, &of, Budget::per_day(*bytes as f64))],
            None => {
                let known = provider.capabilities().bytes_per_day_of_hosts.iter();
                known
                    .map(|(host, bytes)| row(Limit::Bytes, &format!("{of} at {host}"), Budget::per_day(*bytes as f64)))
                    .collect()
            }
        }
    }
}

impl CallBudgets {
    fn rows(&self, provider: Provider) -> Vec<LimitRow> {
        let owners = [
            ("all tenants", self.app),
            ("tenant", self.tenant),
            ("credential", self.credential),
            ("mailbox", self.mailbox),
        ];
        let mut rows = Vec::new();
        for (owner, Allowance { calls, bytes, units }) in owners {
            let of = format!("{}, {owner}", provider.as_str());
            for (limit, budget) in [(Limit::Calls, calls), (Limit::Bytes, bytes), (Limit::QuotaUnits, units)] {
                rows.extend(budget.map(|budget| row(limit, &of, budget)));
            }
        }
        rows
    }
}

impl WorkLimits {
    fn rows(&self) -> Vec<LimitRow> {
        let PollLimits { jobs, polls, tenant_jobs, tenant_polls, .. } = PollLimits::for_workers(self.mailbox_workers);
        let mut rows = vec![
            row(Limit::Jobs, "process, on mailboxes", self.mailbox_workers),
            row(Limit::Jobs, "process, others", self.jobs),
            row(Limit::PollJobs, "provider", jobs),
            row(Limit::PollJobs, "provider, tenant", tenant_jobs),
            row(Limit::Polls, "provider", polls),
            row(Limit::Polls, "provider, tenant", tenant_polls),
        ];
        for provider in remote_providers() {
            let of = format!("{}, mailbox", provider.as_str());
            rows.push(row(Limit::FetchBatches, &of, provider.capabilities().concurrent_batches));
        }
        rows.extend([
            row(Limit::Memory, "process", format!("{} MiB", MAX_BYTES_IN_FLIGHT >> 20)),
            row(Limit::Memory, "provider, of its own", format!("{} MiB", PROVIDER_RESERVE_BYTES >> 20)),
            row(Limit::Discoveries, "process", self.discoveries),
        ]);
        rows
    }
}

impl RequestLimits {
    fn rows(&self) -> Vec<LimitRow> {
        vec![
            row(Limit::Requests, "tenant with plan standard", self.per_second.of(PlanTier::Standard)),
            row(Limit::Requests, "tenant with plan vip", self.per_second.of(PlanTier::Vip)),
            row(Limit::RequestsInFlight, "process", self.in_flight),
            row(Limit::RequestsInFlight, "tenant", self.tenant_in_flight()),
            row(Limit::Streams, "process", self.streams),
            row(Limit::Streams, "tenant", self.tenant_streams()),
            row(Limit::Connections, "process, of clients", self.connections()),
            row(Limit::Notifications, "provider that sets a deadline", MAX_WAITING_NOTIFICATIONS),
            row(Limit::WrongKeys, "address", format!("{} a minute", self.wrong_keys)),
        ]
    }
}

fn remote_providers() -> impl Iterator<Item = Provider> {
    Provider::ALL.into_iter().filter(|provider| provider.capabilities().is_remote)
}

/// Returns the rows of what is shared by server and by tenant.
fn server_rows(limit: Limit, server: &str, max: usize) -> [LimitRow; 3] {
    let [of_server, of_tenant, of_tenant_at_server] = server_limits(max);
    [
        row(limit, server, of_server),
        row(limit, &format!("tenant, over all {server}s"), of_tenant),
        row(limit, &format!("tenant at one {server}"), of_tenant_at_server),
    ]
}

fn row(limit: Limit, of: &str, allows: impl ToString) -> LimitRow {
    LimitRow { limit: limit.title(), of: of.to_owned(), allows: allows.to_string() }
}

fn breaker_text() -> String {
    format!(
        "opens when {} % of at least {} calls in {} s fail; then a probe every {} s, and {} in a row close it",
        breaker::OPEN_AT_FAILURE_PERCENT,
        breaker::MIN_CALLS,
        breaker::WINDOW.as_secs(),
        breaker::PROBE_INTERVAL.as_secs(),
        breaker::SUCCESSES_TO_CLOSE
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn table_lists_every_limit_there_is() {
        let calls = CallSettings { max_in_flight: Some(100), ..CallSettings::default() };
        let work = WorkLimits { mailbox_workers: 500, jobs: 64, discoveries: 100 };
        let limits = Limits { calls, work, requests: RequestLimits::default() };

        let rows = limits.rows();

        let providers = remote_providers().count();
        for (limit, count) in
            [("circuit breaker", 1), ("Retry-After", 1), ("calls", providers), ("deadline", 1), ("requests", 2)]
        {
            assert_eq!(rows.iter().filter(|row| row.limit == limit).count(), count, "{limit}: {rows:?}");
        }
        let of_imap = rows.iter().filter(|row| row.limit == "calls in flight" && row.of.contains("IMAP"));
        let of_imap: Vec<&str> = of_imap.map(|row| row.allows.as_str()).collect();
        assert_eq!(of_imap, ["50", "75", "37"]);
        let owners: BTreeSet<(&str, &str)> = rows.iter().map(|row| (row.limit, row.of.as_str())).collect();
        assert_eq!(owners.len(), rows.len(), "no row is there twice: {rows:?}");
    }
}
