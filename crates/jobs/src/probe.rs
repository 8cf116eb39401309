//! A job for tests, which fails, hangs or crashes its process on demand. No shipped program has it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::RetryPolicy;
use crate::kind::{Completion, Job, JobContext, JobError, JobKind};

/// Writes one row and perhaps enqueues a child, or fails as its payload says.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// How many generations of one child each follow.
    #[serde(skip_serializing_if = "is_zero")]
    pub children: u32,
    /// How many attempts fail before one succeeds.
    #[serde(skip_serializing_if = "is_zero")]
    pub fail: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub sleep_ms: u32,
    /// What it does instead of succeeding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<ProbeFault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeFault {
    /// Never ends.
    Hang,
    /// Aborts the process.
    Abort,
    Panic,
    Throttle,
}

impl Job for Probe {
    const KIND: &'static str = "probe";
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub fn probe(retry: RetryPolicy) -> JobKind {
    JobKind::new(run).with_retry(retry)
}

async fn run(context: JobContext, probe: Probe) -> Result<Completion, JobError> {
    if probe.sleep_ms > 0 {
        tokio::time::sleep(Duration::from_millis(probe.sleep_ms.into())).await;
    }
    match probe.then {
        Some(ProbeFault::Hang) => std::future::pending().await,
        Some(ProbeFault::Abort) => std::process::abort(),
        Some(ProbeFault::Panic) => panic!("the probe was told to panic"),
        Some(ProbeFault::Throttle) => return Err(JobError::Deferred(Duration::from_secs(1))),
        None => {}
    }
    if context.job.attempt < u64::from(probe.fail) {
        let message = format!("the probe was told to fail {} times", probe.fail);
        return Err(JobError::Failed { class: "probe", message });
    }
    let mut unit = context.write();
    unit.record_probe(&context.job);
    if probe.children > 0 {
        let child = Probe { children: probe.children - 1, ..probe };
        let mut follow_up = context.follow_up(&child).map_err(anyhow::Error::from)?;
        follow_up.lane = context.job.lane;
        unit.enqueue(vec![follow_up]);
    }
    Ok(Completion::Commit(unit))
}
