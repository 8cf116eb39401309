//! The figures of the job benchmark, for people and for programs.

use serde_json::{Value, json};
use terminal::{Failure, Output, count};

use super::latency::WaitPercentiles;

/// The figures of one database.
pub struct JobFigures {
    pub database: &'static str,
    pub settings: &'static str,
    pub jobs: usize,
    pub finished: u64,
    pub rounds: ThroughputRounds,
    pub idle_latency_ms: WaitPercentiles,
    pub mix_per_second: u64,
    pub mix_wait_big_tenant_ms: WaitPercentiles,
    pub mix_wait_small_tenants_ms: WaitPercentiles,
}

/// The rates of each measurement, round by round.
#[derive(Debug, Default)]
pub struct ThroughputRounds {
    pub enqueued: RateSeries,
    pub worker: RateSeries,
    pub beside_finished: RateSeries,
    pub fair: RateSeries,
    pub fifo: RateSeries,
    pub bare: RateSeries,
    pub beside_floods: RateSeries,
    pub with_pinned_snapshot: RateSeries,
}

/// Jobs per second in each round of one measurement.
#[derive(Debug, Default)]
pub struct RateSeries(Vec<f64>);

impl RateSeries {
    pub fn add(&mut self, per_second: f64) {
        self.0.push(per_second);
    }

    fn best(&self) -> Option<f64> {
        self.0.iter().copied().max_by(f64::total_cmp)
    }

    /// Returns the median of the rounds' ratios: a slow moment of the machine affects both sides of a round.
    fn ratio_to(&self, other: &Self) -> Option<f64> {
        let mut ratios: Vec<f64> = self.0.iter().zip(&other.0).map(|(one, other)| one / other).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }
}

impl JobFigures {
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
            "fair_to_fifo": r.fair.ratio_to(&r.fifo),
            "bare_sql_per_second": r.bare.best(),
            "fair_to_bare_sql": r.fair.ratio_to(&r.bare),
            "beside_floods_per_second": r.beside_floods.best(),
            "beside_floods_to_without": r.beside_floods.ratio_to(&r.fair),
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
            value["beside_finished_to_empty"] = json!(r.beside_finished.ratio_to(&r.worker));
        }
        value
    }

    fn rows(&self) -> Vec<[String; 3]> {
        let r = &self.rounds;
        let mut rows = FigureRows { database: format!("{} ({})", self.database, self.settings), rows: Vec::new() };
        rows.add("enqueue in bulk, jobs/s", per_second(&r.enqueued));
        rows.add("a worker: claim + run a no-op + complete, jobs/s", per_second(&r.worker));
        if self.finished > 0 {
            let beside = format!("  beside {} finished jobs", count(self.finished));
            rows.add(&beside, per_second(&r.beside_finished));
            rows.add("  of the rate beside none (goal: 90 % or more)", ratio(&r.beside_finished, &r.worker));
        }
        rows.add("  beside an old snapshot", per_second(&r.with_pinned_snapshot));
        rows.add("claim by fair shares + complete, nothing run, jobs/s", per_second(&r.fair));
        rows.add("  the same in plain order of lane and time (FIFO)", per_second(&r.fifo));
        rows.add("  fair of FIFO (goal: 85 % or more)", ratio(&r.fair, &r.fifo));
        rows.add("  the same by bare SQL: no payload, token or children", per_second(&r.bare));
        rows.add("  fair of bare SQL", ratio(&r.fair, &r.bare));
        let floods = count(self.jobs as u64);
        rows.add(&format!("  fair, a paused and a full tenant of {floods} ahead"), per_second(&r.beside_floods));
        rows.add("  of the rate without them (goal: 85 % or more)", ratio(&r.beside_floods, &r.fair));
        rows.add("enqueue → start when idle, ms p50 / p95 / p99", three(self.idle_latency_ms));
        let mix = format!("wait at {} jobs/s, big tenant, ms", count(self.mix_per_second));
        rows.add(&mix, three(self.mix_wait_big_tenant_ms));
        rows.add("  the same, small tenants, ms", three(self.mix_wait_small_tenants_ms));
        rows.rows
    }
}

/// The rows of a table about one database.
struct FigureRows {
    database: String,
    rows: Vec<[String; 3]>,
}

impl FigureRows {
    /// Adds a row, unless nothing was measured for it.
    fn add(&mut self, label: &str, value: Option<String>) {
        self.rows.extend(value.map(|value| [self.database.clone(), label.to_owned(), value]));
    }
}

fn per_second(series: &RateSeries) -> Option<String> {
    series.best().map(|value| count(value as u64))
}

fn ratio(one: &RateSeries, other: &RateSeries) -> Option<String> {
    one.ratio_to(other).map(|ratio| format!("{:.0} %", ratio * 100.0))
}

fn three(p: WaitPercentiles) -> Option<String> {
    Some(format!("{:.1} / {:.1} / {:.1}", p.p50, p.p95, p.p99))
}

pub fn show(figures: &[JobFigures], out: Output) -> Result<(), Failure> {
    if out.json {
        // One object: the figures of each database under its name.
        let all: serde_json::Map<String, Value> =
            figures.iter().map(|f| (f.database.to_lowercase(), f.json())).collect();
        return out.object(&all);
    }
    let rows: Vec<[String; 3]> = figures.iter().flat_map(JobFigures::rows).collect();
    let jobs = figures.first().map_or(0, |f| f.jobs);
    out.line(&format!(
        "{} jobs, 97 of 100 of one tenant, durable; the best of {} rounds by turns, ratios of the middle round:\n",
        count(jobs as u64),
        super::ROUNDS
    ))?;
    out.table(["database", "", ""], &rows)
}
