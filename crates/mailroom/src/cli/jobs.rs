//! The command line of the queue: `jobs`, `recurring` and `dead-letters`.

use clap::{Args, Subcommand, ValueEnum};
use domain::{JobId, JobState, Lane};

use super::Plan;

#[derive(Debug, Subcommand)]
pub enum Jobs {
    /// Count jobs by state, lane and kind, and show who works
    #[command(after_help = "Example:\n  mailroom jobs stats")]
    Stats,
    /// List jobs, newest first
    #[command(after_help = "Example:\n  mailroom jobs list --state retry --tenant acme")]
    List {
        /// scheduled, blocked, ready, running, retry, done, dead or cancelled
        #[arg(long, value_parser = state)]
        state: Option<JobState>,
        #[command(flatten)]
        of: OfKindAndTenant,
        /// How many to show
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u64,
        /// Go on after this job
        #[arg(long, value_parser = job_id, value_name = "ID")]
        after: Option<JobId>,
    },
    /// Show one job with everything that went wrong
    #[command(after_help = "Example:\n  mailroom jobs show 0190b6c1-…")]
    Show(OneJob),
    /// Tell why a job is not running
    #[command(after_help = "Example:\n  mailroom jobs why 0190b6c1-…")]
    Why(OneJob),
    /// Run a job now: one that waits for its time, or one that is dead or was cancelled
    #[command(after_help = "Example:\n  mailroom jobs retry 0190b6c1-…")]
    Retry(OneJob),
    /// End a job; one that runs is asked to stop
    #[command(after_help = "Example:\n  mailroom jobs cancel 0190b6c1-… --reason 'sent by mistake'")]
    Cancel {
        #[command(flatten)]
        job: OneJob,
        /// Why; kept with the job
        #[arg(long, default_value = "cancelled by an operator", value_name = "TEXT")]
        reason: String,
    },
    /// Put a job into another lane
    #[command(after_help = "Example:\n  mailroom jobs move 0190b6c1-… --lane critical")]
    Move {
        #[command(flatten)]
        job: OneJob,
        #[arg(long)]
        lane: LaneName,
    },
    /// Start no more jobs of a lane, a kind or a tenant; what runs goes on
    #[command(after_help = "Example:\n  mailroom jobs pause --tenant acme")]
    Pause(Whole),
    /// Let a lane, a kind or a tenant go on
    #[command(after_help = "Example:\n  mailroom jobs resume --tenant acme")]
    Resume(Whole),
    /// Limit how many jobs of a tenant or kind run at once, or how many of a tenant may wait
    #[command(after_help = "Example:\n  mailroom jobs limit --tenant acme --running 20 --waiting none")]
    Limit {
        #[command(flatten)]
        target: TenantOrKind,
        /// A number, or `none`
        #[arg(long, value_parser = limit, value_name = "N", required_unless_present = "waiting")]
        running: Option<Most>,
        /// A number, or `none`; a tenant that has its fill is refused more
        #[arg(long, value_parser = limit, value_name = "N", conflicts_with = "kind")]
        waiting: Option<Most>,
    },
    /// Set how large a share the tenants of a plan get
    #[command(after_help = "Example:\n  mailroom jobs weight vip 8")]
    Weight {
        plan: Plan,
        /// From 1 to 1000
        #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
        weight: u64,
    },
    /// Add jobs by hand
    #[command(after_help = "Example:\n  mailroom jobs enqueue --kind noop --tenant acme --count 1000")]
    Enqueue(Enqueue),
}

#[derive(Debug, Args)]
pub struct Enqueue {
    /// What sort of work, such as noop
    #[arg(long)]
    pub kind: String,
    /// A tenant's name or id, or `system`
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// What it is about, as JSON
    #[arg(long, value_parser = payload, default_value = "{}", value_name = "JSON")]
    pub payload: serde_json::Value,
    /// How many of the same
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub count: u64,
    #[arg(long, default_value = "normal")]
    pub lane: LaneName,
    /// When it is due, such as 10m (default: now)
    #[arg(long = "in", value_name = "DURATION")]
    pub delay: Option<String>,
}

#[derive(Debug, Args)]
pub struct OneJob {
    /// The job's id, as `mailroom jobs list` shows it
    #[arg(value_parser = job_id)]
    pub id: JobId,
}

#[derive(Debug, Args)]
pub struct OfKindAndTenant {
    /// Only this sort of work
    #[arg(long)]
    pub kind: Option<String>,
    /// Only this tenant (name or id, or `system`)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Whole {
    #[arg(long)]
    pub lane: Option<LaneName>,
    #[arg(long)]
    pub kind: Option<String>,
    /// A tenant's name or id, or `system`
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TenantOrKind {
    /// A tenant's name or id, or `system`
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[arg(long)]
    pub kind: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LaneName {
    Critical,
    High,
    Normal,
    Low,
}

impl From<LaneName> for Lane {
    fn from(name: LaneName) -> Self {
        match name {
            LaneName::Critical => Self::Critical,
            LaneName::High => Self::High,
            LaneName::Normal => Self::Normal,
            LaneName::Low => Self::Low,
        }
    }
}

/// A limit that somebody sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Most {
    Number(u64),
    None,
}

#[derive(Debug, Subcommand)]
pub enum Recurring {
    /// List what comes back by the calendar, with its next five times
    #[command(after_help = "Example:\n  mailroom recurring list")]
    List,
    /// Run one now, beside its times
    #[command(after_help = "Example:\n  mailroom recurring run prune_jobs")]
    Run(OneSchedule),
    /// Fire one no more
    #[command(after_help = "Example:\n  mailroom recurring pause prune_jobs")]
    Pause(OneSchedule),
    /// Fire one again from now on
    #[command(after_help = "Example:\n  mailroom recurring resume prune_jobs")]
    Resume(OneSchedule),
}

#[derive(Debug, Args)]
pub struct OneSchedule {
    /// Its name, as `mailroom recurring list` shows it
    pub name: String,
}

#[derive(Debug, Subcommand)]
pub enum DeadLetters {
    /// List jobs that went wrong too often, newest first
    #[command(after_help = "Example:\n  mailroom dead-letters list --groups")]
    List {
        #[command(flatten)]
        of: OfKindAndTenant,
        /// Only this sort of error, as the list shows it
        #[arg(long)]
        fingerprint: Option<String>,
        /// Count them by what went wrong
        #[arg(long)]
        groups: bool,
        /// How many to show
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u64,
        /// Go on after this one
        #[arg(long, value_parser = job_id, value_name = "ID")]
        after: Option<JobId>,
    },
    /// Show one with everything that went wrong
    #[command(after_help = "Example:\n  mailroom dead-letters show 0190b6c1-…")]
    Show(OneJob),
    /// Start them again, with the same ids
    #[command(
        after_help = "Example:\n  mailroom dead-letters replay --all --kind noop --rate 10/s\n  mailroom dead-letters replay 0190b6c1-… --payload '{\"fail\":false}'"
    )]
    Replay {
        #[command(flatten)]
        which: WhichLetters,
        /// At most so many a second, such as 10/s
        #[arg(long, value_parser = rate, value_name = "N/s")]
        rate: Option<f64>,
        /// What it is to be about now, as JSON
        #[arg(long, value_parser = payload, value_name = "JSON", conflicts_with = "all")]
        payload: Option<serde_json::Value>,
    },
    /// Remove them for good
    #[command(after_help = "Example:\n  mailroom dead-letters discard --all --fingerprint 5f3a…")]
    Discard(WhichLetters),
}

#[derive(Debug, Args)]
pub struct WhichLetters {
    /// The job's id, as `mailroom dead-letters list` shows it
    #[arg(value_parser = job_id, required_unless_present = "all", conflicts_with = "all")]
    pub id: Option<JobId>,
    /// All that match
    #[arg(long)]
    pub all: bool,
    /// Only this sort of work
    #[arg(long, requires = "all")]
    pub kind: Option<String>,
    /// Only this tenant (name or id, or `system`)
    #[arg(long, value_name = "TENANT", requires = "all")]
    pub tenant: Option<String>,
    /// Only this sort of error
    #[arg(long, requires = "all")]
    pub fingerprint: Option<String>,
}

fn job_id(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|_| "that is no job's id; `mailroom jobs list` shows them".to_owned())
}

/// A job that may run at any moment is `ready`; people also call that waiting.
fn state(text: &str) -> Result<JobState, String> {
    let text = if text == "waiting" { "ready" } else { text };
    JobState::parse(text)
        .ok_or_else(|| "use scheduled, blocked, ready, running, retry, done, dead or cancelled".to_owned())
}

fn payload(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|e| format!("that is no JSON ({e})"))
}

fn limit(text: &str) -> Result<Most, String> {
    if text == "none" {
        return Ok(Most::None);
    }
    let number = text.parse().ok().filter(|number| (1..=i64::MAX as u64).contains(number));
    number.map(Most::Number).ok_or_else(|| "use a number from 1 on, or none".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse::<f64>().ok();
    // Slower than one a day is no rate that anybody means.
    number.filter(|rate| (0.00001..=1e6).contains(rate)).ok_or_else(|| "use a number a second, like 10/s".to_owned())
}
