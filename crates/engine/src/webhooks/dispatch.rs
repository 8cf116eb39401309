//! Finds webhooks that have something to be told, and has each delivered to by a task of its own.

use std::time::Duration;

use store::sql::webhooks::HeldWebhook;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::deliver::{Courier, HOLD};

/// Webhooks that one process delivers to at the same time.
const MOST_HELD: usize = 512;

/// Those that are claimed by one statement.
const CLAIMED: usize = 64;

/// A look takes at most this part of the time, however many webhooks there are.
const SHARE_OF_TIME: u32 = 10;

#[derive(Debug, Clone)]
pub struct DispatchSettings {
    /// Different for every process.
    pub holder: String,
    /// How often to look.
    pub every: Duration,
}

impl DispatchSettings {
    pub fn new(holder: &str) -> Self {
        Self { holder: holder.to_owned(), every: Duration::from_millis(300) }
    }
}

/// Delivers until `stop` ends, and then what is on its way.
pub async fn dispatch(courier: &Courier, settings: &DispatchSettings, stop: impl Future<Output = ()>) {
    let mut tasks = Tasks::new();
    tokio::pin!(stop);
    loop {
        // Not given up half-way: what was claimed is delivered to.
        let pause = turn(courier, settings, &mut tasks).await;
        tokio::select! {
            () = &mut stop => break,
            () = wait(pause, &mut tasks) => {}
        }
    }
    courier.stop();
    while let Some(ended) = tasks.join_next().await {
        has_more(ended);
    }
}

/// Each says whether its webhook has more.
type Tasks = JoinSet<bool>;

/// Or until one of them had to end though it has more.
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

/// How long to wait for the next one.
async fn turn(courier: &Courier, settings: &DispatchSettings, tasks: &mut Tasks) -> Duration {
    let most = CLAIMED.min(MOST_HELD - tasks.len());
    if most == 0 {
        return settings.every;
    }
    let began = Instant::now();
    let claimed = claim(courier, settings, most).await;
    let took = began.elapsed();
    let is_more = claimed.len() == most;
    for held in claimed {
        let courier = courier.clone();
        tasks.spawn(async move { deliver(&courier, held).await });
    }
    if is_more { Duration::ZERO } else { settings.every.max(took * SHARE_OF_TIME) }
}

async fn claim(courier: &Courier, settings: &DispatchSettings, most: usize) -> Vec<HeldWebhook> {
    match courier.store().system().claim_webhooks(&settings.holder, most as u64, HOLD).await {
        Ok(claimed) => claimed,
        Err(e) => {
            tracing::warn!("looking for webhooks that have something to be told: {e}");
            Vec::new()
        }
    }
}

async fn deliver(courier: &Courier, held: HeldWebhook) -> bool {
    courier.deliver(held).await.unwrap_or_else(|e| {
        // It stays held for a while, so a fault of ours is not met at once again.
        tracing::warn!(tenant.id = %held.tenant, webhook.id = %held.id, "cannot deliver to a webhook for now: {e:#}");
        false
    })
}

fn has_more(ended: Result<bool, JoinError>) -> bool {
    ended.unwrap_or_else(|e| {
        tracing::error!("a delivery to a webhook failed: {e}");
        false
    })
}
