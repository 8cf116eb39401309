//! What was measured, for people and for programs.

use serde_json::{Value, json};

use super::wait::Percentiles;
use crate::failure::Failure;
use crate::output::{Output, count};

pub struct Figures {
    pub database: &'static str,
    pub settings: &'static str,
    pub jobs: usize,
    pub finished: u64,
    pub rounds: Rounds,
    pub idle_latency_ms: Percentiles,
    pub mix_per_second: u64,
    pub mix_wait_big_tenant_ms: Percentiles,
    pub mix_wait_small_tenants_ms: Percentiles,
}

/// Jobs a second, each round of each.
#[derive(Debug, Default)]
pub struct Rounds {
    pub enqueued: Series,
    pub worker: Series,
    pub beside_finished: Series,
    pub fair: Series,
    pub fifo: Series,
    pub bare: Series,
    pub beside_floods: Series,
    pub with_pinned_snapshot: Series,
}

#[derive(Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    pub fn add(&mut self, per_second: f64) {
        self.0.push(per_second);
    }

    fn best(&self) -> Option<f64> {
        self.0.iter().copied().max_by(f64::total_cmp)
    }

    /// The ratio of the middle round: a slow moment of the machine hits both of its sides.
    fn to(&self, other: &Self) -> Option<f64> {
        let mut ratios: Vec<f64> = self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }
}

impl Figures {
    fn json(&self) -> Value {
        let r = &self.rounds;
        let mut value = json!({
            "database": self.database,
            "settings": self.settings,
            "jobs": self.jobs,
            "enqueued_per_second": r.enqueued.best(),
            "completed_per_second": r.worker.best(),
            "fair_per_second": r.fair.best(),
            "fifo_per_second": r.fifo.best(),
            "fair_to_fifo": r.fair.to(&r.fifo),
            "bare_sql_per_second": r.bare.best(),
            "fair_to_bare_sql": r.fair.to(&r.bare),
            "beside_floods_per_second": r.beside_floods.best(),
            "beside_floods_to_without": r.beside_floods.to(&r.fair),
            "idle_latency_ms": self.idle_latency_ms,
            "mix_per_second": self.mix_per_second,
            "mix_wait_big_tenant_ms": self.mix_wait_big_tenant_ms,
            "mix_wait_small_tenants_ms": self.mix_wait_small_tenants_ms,
        });
        if let Some(per_second) = r.with_pinned_snapshot.best() {
            value["with_pinned_snapshot_per_second"] = json!(per_second);
        }
        if self.finished > 0 {
            value["finished"] = json!(self.finished);
            value["beside_finished_per_second"] = json!(r.beside_finished.best());
            value["beside_finished_to_empty"] = json!(r.beside_finished.to(&r.worker));
        }
        value
    }

    fn rows(&self) -> Vec<[String; 3]> {
        let r = &self.rounds;
        let mut rows = Vec::new();
        let mut row = |what: &str, value: Option<String>| {
            let database = format!("{} ({})", self.database, self.settings);
            rows.extend(value.map(|value| [database, what.to_owned(), value]));
        };
        let per_second = |series: &Series| series.best().map(|value| count(value as u64));
        let ratio = |one: &Series, other: &Series| one.to(other).map(|ratio| format!("{:.0} %", ratio * 100.0));
        let three = |p: Percentiles| Some(format!("{:.1} / {:.1} / {:.1}", p.p50, p.p95, p.p99));
        row("enqueue in bulk, jobs/s", per_second(&r.enqueued));
        row("a worker: claim + run a no-op + complete, jobs/s", per_second(&r.worker));
        if self.finished > 0 {
            let beside = format!("  beside {} finished jobs", count(self.finished));
            row(&beside, per_second(&r.beside_finished));
            row("  of the rate beside none (goal: 90 % or more)", ratio(&r.beside_finished, &r.worker));
        }
        row("  beside an old snapshot", per_second(&r.with_pinned_snapshot));
        row("claim by fair shares + complete, nothing run, jobs/s", per_second(&r.fair));
        row("  the same in plain order of lane and time (FIFO)", per_second(&r.fifo));
        row("  fair of FIFO (goal: 85 % or more)", ratio(&r.fair, &r.fifo));
        row("  the same by bare SQL: no payload, token or children", per_second(&r.bare));
        row("  fair of bare SQL", ratio(&r.fair, &r.bare));
        let floods = count(self.jobs as u64);
        row(&format!("  fair, a paused and a full tenant of {floods} ahead"), per_second(&r.beside_floods));
        row("  of the rate without them (goal: 85 % or more)", ratio(&r.beside_floods, &r.fair));
        row("enqueue → start when idle, ms p50 / p95 / p99", three(self.idle_latency_ms));
        let mix = format!("wait at {} jobs/s, big tenant, ms", count(self.mix_per_second));
        row(&mix, three(self.mix_wait_big_tenant_ms));
        row("  the same, small tenants, ms", three(self.mix_wait_small_tenants_ms));
        rows
    }
}

pub fn show(figures: &[Figures], out: Output) -> Result<(), Failure> {
    if out.json {
        // One object: the figures of each database under its name.
        let all: serde_json::Map<String, Value> =
            figures.iter().map(|f| (f.database.to_lowercase(), f.json())).collect();
        return out.object(&all);
    }
    let rows: Vec<[String; 3]> = figures.iter().flat_map(Figures::rows).collect();
    let jobs = figures.first().map_or(0, |f| f.jobs);
    out.line(&format!(
        "{} jobs, 97 of 100 of one tenant, durable; the best of {} rounds by turns, ratios of the middle round:\n",
        count(jobs as u64),
        super::ROUNDS
    ))?;
    out.table(["database", "", ""], &rows)
}
