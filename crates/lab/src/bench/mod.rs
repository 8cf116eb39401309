//! `mailroom bench`: measured work, with a table at the end.

mod api;
mod discover;
mod imap;
mod ingest;
mod jobs;
mod outlook_floor;
mod poll;
mod program;
mod seed;
mod simulated;
mod simulator_process;

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use tempfile::TempDir;
use terminal::{Failure, Output};

use crate::Installation;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Import a generated mailbox and search it
    #[command(after_help = "Example:\n  mailroom bench ingest --postgres postgres://postgres@127.0.0.1/postgres")]
    Ingest(ingest::IngestArgs),
    /// Enqueue, claim, run and complete jobs that do nothing
    #[command(after_help = "Example:\n  mailroom bench jobs --postgres postgres://postgres@127.0.0.1/postgres")]
    Jobs(jobs::JobsArgs),
    /// Poll many mailboxes without new mail
    #[command(
        after_help = "Examples:\n  mailroom bench poll\n  mailroom bench poll --unlimited\n  mailroom bench poll --one-large-tenant"
    )]
    Poll(poll::PollArgs),
    /// Discover the mailboxes of a simulated organisation at Google and at Microsoft
    #[command(after_help = "Example:\n  mailroom bench discover --people 10000 --latency-ms 20")]
    Discover(discover::DiscoverArgs),
    /// Fill an empty database with mail of many tenants, for `bench api`
    #[command(after_help = "Example:\n  mailroom bench seed --emails 1000000 --tenants 100 --keys keys.txt")]
    Seed(seed::SeedArgs),
    /// Send a server requests at a fixed rate (a list, a page far back, a search) and measure their latency
    #[command(after_help = "Example:\n  mailroom bench api --url http://127.0.0.1:8025 --keys keys.txt --rate 500")]
    Api(api::ApiArgs),
}

/// Runs one benchmark. `installation` is the one that this command was called for; most benchmarks make their own.
pub async fn run(command: &BenchCommand, installation: &dyn Installation, out: Output) -> Result<ExitCode, Failure> {
    match command {
        BenchCommand::Ingest(args) => ingest::run(args, installation, out).await,
        BenchCommand::Jobs(args) => jobs::run(args, out).await,
        BenchCommand::Poll(args) => poll::run(args, installation, out).await,
        BenchCommand::Discover(args) => discover::run(args, installation, out).await,
        BenchCommand::Seed(args) => seed::run(args, installation, out).await,
        BenchCommand::Api(args) => api::run(args, out).await,
    }
}

/// Creates the folder of a benchmark in the working directory. Where the system's temporary folder is memory, an fsync
/// costs nothing.
fn scratch_folder() -> Result<TempDir, Failure> {
    Ok(tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?)
}

/// Returns the 50th and the 99th percentile in milliseconds.
fn percentiles(mut times: Vec<Duration>) -> Value {
    times.sort();
    json!([milliseconds(percentile(&times, 50)), milliseconds(percentile(&times, 99))])
}

/// Returns a percentile of sorted times; 0 if there are none.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Returns a number of a JSON object; 0 if it is absent.
fn number(figures: &Value, key: &str) -> f64 {
    figures[key].as_f64().unwrap_or_default()
}
