//! Measures how long jobs wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::TenantId;
use serde::Serialize;
use store::sql::jobs::NewJob;
use terminal::Failure;

use super::queue::{BenchQueue, noop};

/// Number of single jobs, one after the other, for the latency of an idle system.
const IDLE_SAMPLES: u64 = 300;

/// Percentiles of waiting times in milliseconds.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct WaitPercentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl WaitPercentiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let [p50, p95, p99] = [50, 95, 99].map(|percent| {
            let index = (values.len() * percent / 100).min(values.len().saturating_sub(1));
            values.get(index).copied().unwrap_or_default()
        });
        Self { p50, p95, p99 }
    }
}

/// Measures from the commit that enqueues a job to its start, when there is nothing else to do.
pub async fn measure_idle(queue: &BenchQueue) -> Result<WaitPercentiles, Failure> {
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let worker = queue.start_worker(move |_| {
        let _ = started.send(Instant::now());
    });
    let mut waits = Vec::new();
    for _ in 0..IDLE_SAMPLES {
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
    Ok(WaitPercentiles::of(waits))
}

/// Measures how long jobs of the big tenant, and those of the small ones, wait while jobs are enqueued at a steady rate.
pub async fn measure_mix(
    queue: &BenchQueue,
    rate: u64,
    seconds: u64,
) -> Result<(WaitPercentiles, WaitPercentiles), Failure> {
    let waits: Arc<Mutex<(Vec<f64>, Vec<f64>)>> = Arc::default();
    let (recorded, big) = (waits.clone(), queue.big);
    let worker = queue.start_worker(move |context| {
        let wait = context.job.waited_micros as f64 / 1000.0;
        let mut waits = recorded.lock().expect("no thread panics while it holds the list");
        if context.tenant() == big { waits.0.push(wait) } else { waits.1.push(wait) }
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
    while count_waits(&waits) < total {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    worker.shut_down().await;
    let (big, small) = std::mem::take(&mut *waits.lock().expect("no thread panics while it holds the list"));
    Ok((WaitPercentiles::of(big), WaitPercentiles::of(small)))
}

fn count_waits(waits: &Mutex<(Vec<f64>, Vec<f64>)>) -> u64 {
    let waits = waits.lock().expect("no thread panics while it holds the list");
    (waits.0.len() + waits.1.len()) as u64
}
