//! `mailroom jobs stats`

use serde_json::json;
use store::Store;
use store::sql::jobs::{JobGroup, WorkerRow};
use terminal::{Failure, Output, count, one_line};

use super::job_output::format_time;

pub async fn show(store: &Store, out: Output) -> Result<(), Failure> {
    let system = store.system();
    let (stats, lanes) = (system.job_stats().await?, system.lane_depths().await?);
    let dead = system.count_dead_letters().await?;
    if out.json {
        return out.object(&json!({
            "lanes": lanes,
            "live": stats.live,
            "finished": stats.finished,
            "dead_letters": dead,
            "workers": stats.workers,
            "strays": stats.strays,
        }));
    }
    let rows = lanes.iter().map(|depth| {
        let age = if depth.waiting == 0 { String::new() } else { format!("{:.1} s", depth.oldest_micros as f64 / 1e6) };
        [depth.lane.as_str().to_owned(), count(depth.waiting), age]
    });
    out.table(["lane", "ready", "oldest"], &rows.collect::<Vec<_>>())?;
    out.line("")?;
    let rows: Vec<[String; 4]> = stats.live.iter().chain(&stats.finished).map(group).collect();
    if rows.is_empty() {
        out.line("No jobs yet.")?;
    } else {
        out.table(["kind", "lane", "state", "jobs"], &rows)?;
    }
    out.line("")?;
    if stats.workers.is_empty() {
        out.line("No worker is running; `mailroom serve --roles worker` starts one.")?;
    } else {
        out.table(["worker", "running", "since", "kinds"], &stats.workers.iter().map(worker).collect::<Vec<_>>())?;
    }
    let strays = stats.strays.total();
    if strays > 0 {
        out.line(&format!("{} stray jobs, which will never run: {:?}", count(strays), stats.strays))?;
    }
    Ok(())
}

fn group(group: &JobGroup) -> [String; 4] {
    [one_line(&group.kind, 40), group.lane.as_str().to_owned(), group.state.as_str().to_owned(), count(group.count)]
}

fn worker(worker: &WorkerRow) -> [String; 4] {
    [
        one_line(&worker.name, 40),
        count(worker.running),
        format_time(worker.started_at),
        one_line(&worker.kinds.join(" "), 100),
    ]
}
