//! The catalogue of metrics: everything that `/metrics` exports, in one place. Code that sets a metric names it by its
//! constant here, `/metrics` has the help, and `docs/metrics.md` is generated from it (`make docs`).

/// How a metric behaves, in Prometheus' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
    /// The file that sets it, under `crates/`.
    pub source: &'static str,
}

macro_rules! catalogue {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $source:literal $help:literal)*) => {
        $(#[doc = $help] pub const $constant: &str = $name;)*

        /// Every metric, in the order of this file.
        pub const CATALOGUE: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
            source: $source,
        }),*];
    };
}

// Labels have few values, which are known beforehand: no tenant, no address, no free text.
catalogue! {
    // Taking mail in.
    MAILBOXES = Gauge "mailroom_mailboxes" ["provider", "state"] "web/src/metrics.rs"
        "Mailboxes of active tenants, by provider and state."
    SYNC_LAG_SECONDS = Gauge "mailroom_sync_lag_seconds" ["provider"] "web/src/metrics.rs"
        "Time since the last successful sync beyond the mailbox's interval, of the worst active mailbox. 0: all are in time."
    SYNC_ATTEMPTS = Counter "mailroom_sync_attempts_total" ["acquired"] "engine/src/sync/list.rs"
        "Syncs that were begun, by whether they acquired the lease of the mailbox."
    SYNC_DURATION_SECONDS = Histogram "mailroom_sync_duration_seconds" [] "engine/src/sync/list.rs"
        "Duration of one listing of a mailbox's changes, without the fetches that follow."
    SYNC_DUPLICATES = Counter "mailroom_sync_duplicates_total" [] "engine/src/sync/fetch.rs"
        "Messages that were fetched though they were stored already, and were not stored again."
    POLLS = Counter "mailroom_polls_total" ["provider", "found"] "engine/src/sync/poll.rs"
        "Polls of a mailbox by a single call, by whether they found something."
    POLL_DURATION_SECONDS = Histogram "mailroom_poll_duration_seconds" [] "engine/src/sync/poll.rs"
        "Duration of a poll that was answered, with its waits for permits."
    EMAILS_INGESTED = Counter "mailroom_emails_ingested_total" ["provider"] "engine/src/sync/fetch.rs"
        "New emails that were fetched and handed to the database."
    EMAIL_PROCESSING_SECONDS = Histogram "mailroom_email_processing_seconds" [] "engine/src/archive/ingest/mod.rs"
        "Time to parse the batch that an email came in and to make its bytes durable, once for each new email."
    COMPLETENESS_DIFFERENCE = Gauge "mailroom_completeness_difference" [] "engine/src/jobs/check_completeness.rs"
        "Messages that the providers had and Mailroom had not, by the last completeness check."

    // Providers.
    PROVIDER_REQUESTS = Counter "mailroom_provider_requests_total" ["provider", "outcome"] "outbound/src/gateway.rs"
        "Calls of providers' APIs, by their outcome."
    BREAKERS = Gauge "mailroom_breakers" ["provider", "state"] "outbound/src/breaker.rs"
        "Circuit breakers of this process, by provider (or `webhooks`) and state."
    LIMIT_REFUSALS = Counter "mailroom_limit_refusals_total" ["limit"] "outbound/src/limits.rs"
        "What a limit has put off or refused: calls, connections, work of our own, requests. `mailroom limits show` lists the limits."
    LIMIT_PERMITS = Gauge "mailroom_limit_permits" ["limit"] "outbound/src/limits.rs"
        "Permits of this process in use, of limits that allow so many at once."
    TOKEN_REFRESH_FAILURES = Counter "mailroom_token_refresh_failures_total" ["provider"] "engine/src/credentials/tokens/mod.rs"
        "Requests for an access token that failed."
    PUSHES = Counter "mailroom_pushes_total" ["provider", "outcome"] "engine/src/sync/push/mod.rs"
        "Push notifications from providers, by what was done with them."
    WATCHES = Counter "mailroom_watches_total" ["provider", "outcome"] "engine/src/sync/push/watches.rs"
        "Watches (subscriptions to pushes) that were requested, renewed or stopped, by their outcome."
    IDLE_CONNECTIONS = Gauge "mailroom_idle_connections" [] "engine/src/sync/mailbox_listeners/listener.rs"
        "IMAP connections of this process that wait for news with IDLE."
    DISCOVERIES = Counter "mailroom_discoveries_total" ["provider", "outcome"] "engine/src/directory/mod.rs"
        "Discoveries of an organisation's mailboxes that ended, by their outcome."

    // Jobs.
    JOBS_READY = Gauge "mailroom_jobs_ready" ["lane"] "web/src/metrics.rs"
        "Jobs that are ready and wait for a worker."
    JOBS_OLDEST_AGE_SECONDS = Gauge "mailroom_jobs_oldest_age_seconds" ["lane"] "web/src/metrics.rs"
        "Time that the oldest ready job has waited."
    JOBS_WAIT_SECONDS = Histogram "mailroom_jobs_wait_seconds" [] "jobs/src/worker/attempt.rs"
        "Time from when a job was due until it was claimed."
    JOBS_FINISHED = Counter "mailroom_jobs_finished_total" ["kind", "outcome"] "jobs/src/worker/attempt.rs"
        "Attempts of jobs that ended, by kind and outcome."
    JOBS_ABANDONED = Counter "mailroom_jobs_abandoned_total" [] "jobs/src/worker/upkeep.rs"
        "Jobs that were taken back from workers that stopped renewing their lease."
    JOBS_STRAYS = Gauge "mailroom_jobs_strays" [] "web/src/metrics.rs"
        "Jobs that break a rule of the queue. 0, or there is a defect."
    JOBS_WITHOUT_WORKER = Gauge "mailroom_jobs_without_worker" [] "web/src/metrics.rs"
        "Jobs of kinds that no running worker knows."
    DEAD_LETTERS = Gauge "mailroom_dead_letters" [] "web/src/metrics.rs"
        "Jobs that failed for good and wait for a person."

    // Storage, events, HTTP.
    DATABASE_UP = Gauge "mailroom_database_up" [] "web/src/metrics.rs"
        "1 if the database answered this scrape, 0 if not; then gauges over the database are as they were before."
    STORAGE_TROUBLE = Gauge "mailroom_storage_trouble" ["part"] "engine/src/storage_health.rs"
        "1 while this process cannot write to a part of our own storage (`blobs`, `disk`), so that work waits for it; else 0."
    BLOB_SECONDS = Histogram "mailroom_blob_seconds" ["op"] "store/src/blobs/mod.rs"
        "Duration of operations of the blob storage, by operation."
    WEBHOOK_DELIVERIES = Counter "mailroom_webhook_deliveries_total" ["outcome"] "engine/src/delivery/webhooks/deliver.rs"
        "Attempts to deliver an event to a webhook, by the state that they led to."
    HTTP_REQUESTS = Counter "mailroom_http_requests_total" ["route", "status"] "web/src/edge/mod.rs"
        "HTTP requests that were answered, by route and status."
}

/// The page `docs/metrics.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         ```\ncurl -s http://127.0.0.1:8025/metrics\n```\n\n\
         Served in Prometheus' text format to this machine; `server.metrics_listen` opens them to others. Labels carry no \
         tenant, no address and no free text. A series appears once it has a value; names, types and help are there from the start.\n\n\
         This page is generated from [the catalogue](../crates/domain/src/metrics.rs) by `make docs`.\n\n\
         | metric | kind | labels | meaning | set in |\n|---|---|---|---|---|\n",
    );
    for Metric { name, kind, labels, help, source } in CATALOGUE {
        let (kind, labels) = (kind.as_str(), labels.join(", "));
        page += &format!("| `{name}` | {kind} | {labels} | {help} | [{source}](../crates/{source}) |\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn repository() -> &'static Path {
        Path::new("../..")
    }

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let names: BTreeSet<&str> = CATALOGUE.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), CATALOGUE.len(), "a name is there twice");
        for metric in CATALOGUE {
            assert!(metric.name.starts_with("mailroom_"), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
            assert!(metric.kind != MetricKind::Histogram || metric.name.ends_with("_seconds"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }

    #[test]
    fn page_is_what_the_catalogue_says() {
        let stored = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap_or_default();
        assert_eq!(stored, page(), "docs/metrics.md is old: run `make docs`");
    }

    #[test]
    fn sources_name_only_metrics_of_the_catalogue() {
        let mut sources = Vec::new();
        collect_sources(&repository().join("crates"), &mut sources);
        for (path, text) in &sources {
            for kind in ["counter", "gauge", "histogram"] {
                assert!(!text.contains(&format!("{kind}!(\"")), "{path}: name the metric by its constant");
            }
        }
        let text = include_str!("metrics.rs");
        for metric in CATALOGUE {
            let before = text.split(&format!("\"{}\"", metric.name)).next().unwrap();
            let constant = before.lines().last().unwrap().trim().split(' ').next().unwrap();
            let source = sources.iter().find(|(path, _)| path.ends_with(metric.source));
            let is_set = source.is_some_and(|(_, text)| text.contains(&format!("catalogue::{constant}")));
            assert!(is_set, "{} is not set in {}", metric.name, metric.source);
        }
    }

    /// Collects the production code of all crates.
    fn collect_sources(folder: &Path, sources: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                collect_sources(&path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
}
