//! The command line of the queue: `jobs`, `recurring` and `dead-letters`.

use clap::{Args, Subcommand, ValueEnum};
use domain::{JobId, JobState, Lane};

use super::PlanArg;

#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Count jobs by state, lane and kind, and list the workers
    #[command(after_help = "Example:\n  mailroom jobs stats")]
    Stats,
    /// List jobs, newest first
    #[command(after_help = "Example:\n  mailroom jobs list --state retry --tenant acme")]
    List {
        /// Only jobs in this state: scheduled, blocked, ready, running, retry, done, dead or cancelled
        #[arg(long, value_parser = state)]
        state: Option<JobState>,
        #[command(flatten)]
        selector: JobSelector,
        /// Maximum number of jobs
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u64,
        /// Continue after this job
        #[arg(long, value_parser = job_id, value_name = "ID")]
        after: Option<JobId>,
    },
    /// Show one job with its failed attempts
    #[command(after_help = "Example:\n  mailroom jobs show 0190b6c1-…")]
    Show(JobArg),
    /// Explain why a job is not running
    #[command(after_help = "Example:\n  mailroom jobs why 0190b6c1-…")]
    Why(JobArg),
    /// Run a job now: a scheduled one, one waiting for a retry, or a dead or cancelled one
    #[command(after_help = "Example:\n  mailroom jobs retry 0190b6c1-…")]
    Retry(JobArg),
    /// Cancel a job; a running one is asked to stop
    #[command(after_help = "Example:\n  mailroom jobs cancel 0190b6c1-… --reason 'sent by mistake'")]
    Cancel {
        #[command(flatten)]
        job: JobArg,
        /// Reason, stored with the job
        #[arg(long, default_value = "cancelled by an operator", value_name = "TEXT")]
        reason: String,
    },
    /// Move a job to another lane
    #[command(after_help = "Example:\n  mailroom jobs move 0190b6c1-… --lane critical")]
    Move {
        #[command(flatten)]
        job: JobArg,
        /// The new lane
        #[arg(long)]
        lane: LaneArg,
    },
    /// Pause a lane, a kind or a tenant: no more jobs are started; running jobs continue
    #[command(after_help = "Example:\n  mailroom jobs pause --tenant acme")]
    Pause(PauseTarget),
    /// Resume a lane, a kind or a tenant
    #[command(after_help = "Example:\n  mailroom jobs resume --tenant acme")]
    Resume(PauseTarget),
    /// Limit how many jobs of a tenant or kind run at once, or how many of a tenant may wait
    #[command(after_help = "Example:\n  mailroom jobs limit --tenant acme --running 20 --waiting none")]
    Limit {
        #[command(flatten)]
        target: LimitTarget,
        /// Maximum number of running jobs, or `none`
        #[arg(long, value_parser = limit, value_name = "N", required_unless_present = "waiting")]
        running: Option<LimitValue>,
        /// Maximum number of waiting jobs, or `none`; above it, new jobs are refused
        #[arg(long, value_parser = limit, value_name = "N", conflicts_with = "kind")]
        waiting: Option<LimitValue>,
    },
    /// Set the share of the workers that tenants of a plan get
    #[command(after_help = "Example:\n  mailroom jobs weight vip 8")]
    Weight {
        plan: PlanArg,
        /// From 1 to 1000
        #[arg(value_parser = clap::value_parser!(u64).range(1..=1000))]
        weight: u64,
    },
    /// Add jobs by hand
    #[command(after_help = "Example:\n  mailroom jobs enqueue --kind noop --tenant acme --count 1000")]
    Enqueue(EnqueueArgs),
}

#[derive(Debug, Args)]
pub struct EnqueueArgs {
    /// Kind of the jobs, such as noop
    #[arg(long)]
    pub kind: String,
    /// A tenant's name or id, or `system`
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// Payload, as JSON
    #[arg(long, value_parser = payload, default_value = "{}", value_name = "JSON")]
    pub payload: serde_json::Value,
    /// Number of jobs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub count: u64,
    /// Lane of the jobs
    #[arg(long, default_value = "normal")]
    pub lane: LaneArg,
    /// Delay, such as 10m (default: now)
    #[arg(long = "in", value_name = "DURATION")]
    pub delay: Option<String>,
}

#[derive(Debug, Args)]
pub struct JobArg {
    /// The job's id, as `mailroom jobs list` shows it
    #[arg(value_parser = job_id)]
    pub id: JobId,
}

#[derive(Debug, Args)]
pub struct JobSelector {
    /// Only jobs of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only this tenant (name or id, or `system`)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct PauseTarget {
    /// A lane
    #[arg(long)]
    pub lane: Option<LaneArg>,
    /// A kind of jobs
    #[arg(long)]
    pub kind: Option<String>,
    /// A tenant's name or id, or `system`
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct LimitTarget {
    /// A tenant's name or id, or `system`
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    #[arg(long)]
    pub kind: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LaneArg {
    Critical,
    High,
    Normal,
    Low,
}

impl From<LaneArg> for Lane {
    fn from(name: LaneArg) -> Self {
        match name {
            LaneArg::Critical => Self::Critical,
            LaneArg::High => Self::High,
            LaneArg::Normal => Self::Normal,
            LaneArg::Low => Self::Low,
        }
    }
}

/// New value of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitValue {
    Number(u64),
    None,
}

#[derive(Debug, Subcommand)]
pub enum RecurringCommand {
    /// List recurring jobs with their next five times
    #[command(after_help = "Example:\n  mailroom recurring list")]
    List,
    /// Run a recurring job now, in addition to its schedule
    #[command(after_help = "Example:\n  mailroom recurring run prune_jobs")]
    Run(ScheduleArg),
    /// Pause a recurring job
    #[command(after_help = "Example:\n  mailroom recurring pause prune_jobs")]
    Pause(ScheduleArg),
    /// Resume a recurring job
    #[command(after_help = "Example:\n  mailroom recurring resume prune_jobs")]
    Resume(ScheduleArg),
}

#[derive(Debug, Args)]
pub struct ScheduleArg {
    /// Its name, as `mailroom recurring list` shows it
    pub name: String,
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// List dead letters, newest first
    #[command(after_help = "Example:\n  mailroom dead-letters list --groups")]
    List {
        #[command(flatten)]
        selector: JobSelector,
        /// Only dead letters with this error fingerprint, as the list shows it
        #[arg(long)]
        fingerprint: Option<String>,
        /// Count them by kind and error
        #[arg(long)]
        groups: bool,
        /// Maximum number of jobs
        #[arg(long, default_value_t = 50, value_name = "N")]
        limit: u64,
        /// Continue after this job
        #[arg(long, value_parser = job_id, value_name = "ID")]
        after: Option<JobId>,
    },
    /// Show a dead letter with its failed attempts
    #[command(after_help = "Example:\n  mailroom dead-letters show 0190b6c1-…")]
    Show(JobArg),
    /// Replay dead letters, with the same ids
    #[command(
        after_help = "Example:\n  mailroom dead-letters replay --all --kind noop --rate 10/s\n  mailroom dead-letters replay 0190b6c1-… --payload '{\"fail\":false}'"
    )]
    Replay {
        #[command(flatten)]
        selector: DeadLetterSelector,
        /// Maximum rate, such as 10/s
        #[arg(long, value_parser = rate, value_name = "N/s")]
        rate: Option<f64>,
        /// New payload, as JSON
        #[arg(long, value_parser = payload, value_name = "JSON", conflicts_with = "all")]
        payload: Option<serde_json::Value>,
    },
    /// Discard dead letters permanently
    #[command(after_help = "Example:\n  mailroom dead-letters discard --all --fingerprint 5f3a…")]
    Discard(DeadLetterSelector),
}

#[derive(Debug, Args)]
pub struct DeadLetterSelector {
    /// The job's id, as `mailroom dead-letters list` shows it
    #[arg(value_parser = job_id, required_unless_present = "all", conflicts_with = "all")]
    pub id: Option<JobId>,
    /// All that match
    #[arg(long)]
    pub all: bool,
    /// Only jobs of this kind
    #[arg(long, requires = "all")]
    pub kind: Option<String>,
    /// Only this tenant (name or id, or `system`)
    #[arg(long, value_name = "TENANT", requires = "all")]
    pub tenant: Option<String>,
    /// Only dead letters with this error fingerprint
    #[arg(long, requires = "all")]
    pub fingerprint: Option<String>,
}

fn job_id(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|_| "not the id of a job; `mailroom jobs list` shows ids".to_owned())
}

/// Parses a state; `waiting` is accepted for `ready`.
fn state(text: &str) -> Result<JobState, String> {
    let text = if text == "waiting" { "ready" } else { text };
    JobState::parse(text)
        .ok_or_else(|| "must be scheduled, blocked, ready, running, retry, done, dead or cancelled".to_owned())
}

fn payload(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|e| format!("not valid JSON ({e})"))
}

fn limit(text: &str) -> Result<LimitValue, String> {
    if text == "none" {
        return Ok(LimitValue::None);
    }
    let number = text.parse().ok().filter(|number| (1..=i64::MAX as u64).contains(number));
    number.map(LimitValue::Number).ok_or_else(|| "must be a number of at least 1, or none".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse::<f64>().ok();
    // Slower than one per day is a typing error.
    number
        .filter(|rate| (0.00001..=1e6).contains(rate))
        .ok_or_else(|| "must be a number per second, such as 10/s".to_owned())
}
