//! How long jobs wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::TenantId;
use serde::Serialize;
use store::sql::jobs::NewJob;

use super::queue::{Queue, noop};
use crate::failure::Failure;

/// Single jobs, one after the other, for the latency of an idle system.
const SINGLES: u64 = 300;

#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Percentiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: usize| values.get((values.len() * share / 100).min(values.len().saturating_sub(1))).copied();
        let at = |share| at(share).unwrap_or_default();
        Self { p50: at(50), p95: at(95), p99: at(99) }
    }
}

/// From the commit that enqueues a job to its start, in milliseconds, when there is nothing else to do.
pub async fn latency(queue: &Queue) -> Result<Percentiles, Failure> {
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let worker = queue.worker(move |_| {
        let _ = started.send(Instant::now());
    });
    let mut waits = Vec::new();
    for _ in 0..SINGLES {
        tokio::time::sleep(Duration::from_millis(7)).await;
        let mut unit = queue.store.tenant(queue.big).write();
        unit.enqueue(vec![noop()?]);
        unit.commit().await?;
        let committed = Instant::now();
        if let Some(start) = starts.recv().await {
            waits.push(start.saturating_duration_since(committed).as_secs_f64() * 1000.0);
        }
    }
    worker.shut_down().await;
    Ok(Percentiles::of(waits))
}

/// Jobs keep coming while others run; how many milliseconds those of the big tenant and of the small ones wait.
pub async fn mix(queue: &Queue, rate: u64, seconds: u64) -> Result<(Percentiles, Percentiles), Failure> {
    let waits: Arc<Mutex<(Vec<f64>, Vec<f64>)>> = Arc::default();
    let (seen, big) = (waits.clone(), queue.big);
    let worker = queue.worker(move |held| {
        let wait = held.job.waited_micros as f64 / 1000.0;
        let mut waits = seen.lock().expect("nobody panics while holding the list");
        if held.tenant() == big { waits.0.push(wait) } else { waits.1.push(wait) }
    });
    let total = rate * seconds;
    let begun = Instant::now();
    let mut sent = 0;
    while sent < total {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let due = ((begun.elapsed().as_secs_f64() * rate as f64) as u64).min(total);
        let mut by_tenant: HashMap<TenantId, Vec<NewJob>> = HashMap::new();
        for n in sent..due {
            by_tenant.entry(queue.owner(n as usize)).or_default().push(noop()?);
        }
        sent = due;
        for (tenant, jobs) in by_tenant {
            let mut unit = queue.store.tenant(tenant).write();
            unit.enqueue(jobs);
            unit.commit().await?;
        }
    }
    let seen = || {
        let waits = waits.lock().expect("nobody panics while holding the list");
        (waits.0.len() + waits.1.len()) as u64
    };
    while seen() < total {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    worker.shut_down().await;
    let (big, small) = std::mem::take(&mut *waits.lock().expect("nobody panics while holding the list"));
    Ok((Percentiles::of(big), Percentiles::of(small)))
}
