//! The table at the end.

use std::time::{Duration, Instant};

use serde_json::json;

use super::process;
use crate::failure::Failure;
use crate::output::{Output, count, size};

#[derive(Debug, Default)]
pub struct Figures {
    pub name: String,
    /// Answers a second.
    pub rate: f64,
    p50: Duration,
    p99: Duration,
    max: Duration,
    pub refused: usize,
    pub errors: usize,
    memory: Option<u64>,
    /// Of one core.
    server: Option<f64>,
    ours: Option<f64>,
}

/// What was used when a measurement began.
#[derive(Debug)]
pub struct Spent {
    pid: Option<u32>,
    begun: Instant,
    server: Option<f64>,
    ours: Option<f64>,
}

impl Spent {
    pub fn begin(pid: Option<u32>) -> Self {
        let ours = process::cpu_seconds(std::process::id());
        Self { pid, begun: Instant::now(), server: pid.and_then(process::cpu_seconds), ours }
    }
}

impl Figures {
    pub fn of(name: &str, mut took: Vec<Duration>, seconds: f64) -> Self {
        took.sort_unstable();
        let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
        Self {
            name: name.to_owned(),
            rate: took.len() as f64 / seconds,
            p50: at(50),
            p99: at(99),
            max: took.last().copied().unwrap_or_default(),
            ..Self::default()
        }
    }

    /// What was used since then.
    pub fn spent(&mut self, before: &Spent) {
        let seconds = before.begun.elapsed().as_secs_f64();
        let share = |now: Option<f64>, then: Option<f64>| Some((now? - then?) / seconds);
        self.server = share(before.pid.and_then(process::cpu_seconds), before.server);
        self.ours = share(process::cpu_seconds(std::process::id()), before.ours);
        self.memory = before.pid.and_then(process::memory);
    }
}

pub fn show(all: &[Figures], out: Output) -> Result<(), Failure> {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    if out.json {
        return all.iter().try_for_each(|figures| {
            out.object(&json!({
                "name": figures.name, "answers_per_second": figures.rate, "p50_ms": ms(figures.p50),
                "p99_ms": ms(figures.p99), "max_ms": ms(figures.max), "refused": figures.refused,
                "errors": figures.errors, "server_memory_bytes": figures.memory, "server_cores": figures.server,
                "own_cores": figures.ours,
            }))
        });
    }
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let row = |figures: &Figures| {
        [
            figures.name.clone(),
            format!("{:.0}", figures.rate),
            format!("{:.1}", ms(figures.p50)),
            format!("{:.1}", ms(figures.p99)),
            format!("{:.1}", ms(figures.max)),
            count(figures.refused as u64),
            count(figures.errors as u64),
            figures.memory.map_or("-".to_owned(), size),
            percent(figures.server),
            percent(figures.ours),
        ]
    };
    let rows: Vec<[String; 10]> = all.iter().map(row).collect();
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
