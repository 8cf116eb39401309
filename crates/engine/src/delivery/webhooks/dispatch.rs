//! Claims webhooks with pending events, and delivers to each in a task of its own.

use std::time::Duration;

use domain::redact_for_log;
use store::sql::webhooks::WebhookLease;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::deliver::{CLAIM_LEASE, WebhookDeliverer};

/// Webhooks that one process delivers to at the same time.
const MAX_LEASED_WEBHOOKS: usize = 512;

/// Webhooks that are claimed per statement.
const MAX_CLAIMED_WEBHOOKS: usize = 64;

/// The pause between claims is at least this many times their duration, however many webhooks there are.
const CLAIM_TIME_FACTOR: u32 = 10;

#[derive(Debug, Clone)]
pub struct DispatchSettings {
    /// The name of the lease holder, different for every process.
    pub holder: String,
    /// The interval of claims.
    pub every: Duration,
}

impl DispatchSettings {
    pub fn new(holder: &str) -> Self {
        Self { holder: holder.to_owned(), every: Duration::from_millis(300) }
    }
}

/// Delivers until `stop` completes, and then finishes the requests in flight.
pub async fn dispatch(deliverer: &WebhookDeliverer, settings: &DispatchSettings, stop: impl Future<Output = ()>) {
    let mut tasks = Tasks::new();
    tokio::pin!(stop);
    loop {
        // Not cancelled half-way: claimed webhooks are delivered to.
        let pause = claim_and_deliver(deliverer, settings, &mut tasks).await;
        tokio::select! {
            () = &mut stop => break,
            () = wait(pause, &mut tasks) => {}
        }
    }
    deliverer.stop();
    while let Some(ended) = tasks.join_next().await {
        has_more(ended);
    }
}

/// The running deliveries; each returns whether its webhook has more events.
type Tasks = JoinSet<bool>;

/// Waits for `pause`, or until a delivery ended whose webhook has more events.
async fn wait(pause: Duration, tasks: &mut Tasks) {
    let ended = async {
        while let Some(ended) = tasks.join_next().await {
            if has_more(ended) {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = sleep(pause) => {}
        () = ended => {}
    }
}

/// Claims webhooks and starts their deliveries, and returns how long to wait until the next time.
async fn claim_and_deliver(deliverer: &WebhookDeliverer, settings: &DispatchSettings, tasks: &mut Tasks) -> Duration {
    let max = MAX_CLAIMED_WEBHOOKS.min(MAX_LEASED_WEBHOOKS - tasks.len());
    if max == 0 {
        return settings.every;
    }
    let began = Instant::now();
    let claimed = claim(deliverer, settings, max).await;
    let took = began.elapsed();
    let is_more = claimed.len() == max;
    for lease in claimed {
        let deliverer = deliverer.clone();
        tasks.spawn(async move { deliver(&deliverer, lease).await });
    }
    if is_more { Duration::ZERO } else { settings.every.max(took * CLAIM_TIME_FACTOR) }
}

async fn claim(deliverer: &WebhookDeliverer, settings: &DispatchSettings, max: usize) -> Vec<WebhookLease> {
    match deliverer.store().system().claim_webhooks(&settings.holder, max as u64, CLAIM_LEASE).await {
        Ok(claimed) => claimed,
        Err(e) => {
            tracing::warn!(error = redact_for_log(&e), "webhooks not claimed");
            Vec::new()
        }
    }
}

async fn deliver(deliverer: &WebhookDeliverer, lease: WebhookLease) -> bool {
    deliverer.deliver(lease).await.unwrap_or_else(|e| {
        // The lease stays for a while, so that a fault of ours is not repeated at once.
        let error = redact_for_log(&format_args!("{e:#}"));
        tracing::warn!(tenant.id = %lease.tenant, webhook.id = %lease.id, error, "webhook delivery interrupted");
        false
    })
}

fn has_more(ended: Result<bool, JoinError>) -> bool {
    ended.unwrap_or_else(|e| {
        tracing::error!(error = redact_for_log(&e), "webhook delivery task failed");
        false
    })
}
