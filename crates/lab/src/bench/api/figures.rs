//! The figures of the load benchmark, and their table.

use std::time::{Duration, Instant};

use serde_json::json;
use terminal::{Failure, Output, count, process, size};

use crate::bench::{milliseconds, percentile};

/// Response times of one kind of request, and the resources that were used meanwhile.
#[derive(Debug, Default)]
pub struct LoadFigures {
    pub name: String,
    /// Responses per second.
    pub rate: f64,
    p50: Duration,
    p99: Duration,
    max: Duration,
    pub refused: usize,
    pub errors: usize,
    server_memory_bytes: Option<u64>,
    /// Shares of one core.
    server_cores: Option<f64>,
    own_cores: Option<f64>,
}

/// Processor time that had been used when a measurement began.
#[derive(Debug)]
pub struct UsageSnapshot {
    pid: Option<u32>,
    begun: Instant,
    server_seconds: Option<f64>,
    own_seconds: Option<f64>,
}

impl UsageSnapshot {
    pub fn take(pid: Option<u32>) -> Self {
        let own_seconds = process::cpu_seconds(std::process::id());
        Self { pid, begun: Instant::now(), server_seconds: pid.and_then(process::cpu_seconds), own_seconds }
    }
}

impl LoadFigures {
    pub fn of(name: &str, mut took: Vec<Duration>, seconds: f64) -> Self {
        took.sort_unstable();
        Self {
            name: name.to_owned(),
            rate: took.len() as f64 / seconds,
            p50: percentile(&took, 50),
            p99: percentile(&took, 99),
            max: took.last().copied().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Records the resources that were used since a snapshot.
    pub fn set_usage(&mut self, before: &UsageSnapshot) {
        let seconds = before.begun.elapsed().as_secs_f64();
        let server_seconds = before.pid.and_then(process::cpu_seconds);
        let own_seconds = process::cpu_seconds(std::process::id());
        self.server_cores = server_seconds.zip(before.server_seconds).map(|(now, then)| (now - then) / seconds);
        self.own_cores = own_seconds.zip(before.own_seconds).map(|(now, then)| (now - then) / seconds);
        self.server_memory_bytes = before.pid.and_then(process::resident_memory);
    }

    fn row(&self) -> [String; 10] {
        [
            self.name.clone(),
            format!("{:.0}", self.rate),
            format!("{:.1}", milliseconds(self.p50)),
            format!("{:.1}", milliseconds(self.p99)),
            format!("{:.1}", milliseconds(self.max)),
            count(self.refused as u64),
            count(self.errors as u64),
            self.server_memory_bytes.map_or("-".to_owned(), size),
            percent(self.server_cores),
            percent(self.own_cores),
        ]
    }
}

pub fn show(all: &[LoadFigures], out: Output) -> Result<(), Failure> {
    if out.json {
        return all.iter().try_for_each(|figures| {
            out.object(&json!({
                "name": figures.name, "answers_per_second": figures.rate, "p50_ms": milliseconds(figures.p50),
                "p99_ms": milliseconds(figures.p99), "max_ms": milliseconds(figures.max),
                "refused": figures.refused, "errors": figures.errors,
                "server_memory_bytes": figures.server_memory_bytes, "server_cores": figures.server_cores,
                "own_cores": figures.own_cores,
            }))
        });
    }
    let rows: Vec<[String; 10]> = all.iter().map(LoadFigures::row).collect();
    let heading = [
        "",
        "answers/s",
        "p50 ms",
        "p99 ms",
        "max ms",
        "refused",
        "errors",
        "server memory",
        "server, of a core",
        "load, of a core",
    ];
    out.table(heading, &rows)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}
