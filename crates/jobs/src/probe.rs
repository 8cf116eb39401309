//! Two kinds that do nothing useful: for tests, for measuring, and for whoever wants to see it move.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Retry;
use crate::kind::{Held, Job, JobError, Kind, Verdict};

/// Does nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Noop {}

impl Job for Noop {
    const KIND: &'static str = "noop";
}

/// Leaves one row behind and enqueues a child, if told so; or goes wrong as it is told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// Generations of children to follow, one each.
    #[serde(skip_serializing_if = "is_zero")]
    pub children: u32,
    /// Attempts that fail before one succeeds.
    #[serde(skip_serializing_if = "is_zero")]
    pub fail: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub sleep_ms: u32,
    /// What it does instead of ending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<Trouble>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Never ends.
    Hang,
    /// Takes the process with it.
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

pub fn noop() -> Kind {
    Kind::new(|_, _: Noop| async { Ok(Verdict::Done) })
}

pub fn probe(retry: Retry) -> Kind {
    Kind::new(run).retried(retry)
}

async fn run(held: Held, probe: Probe) -> Result<Verdict, JobError> {
    if probe.sleep_ms > 0 {
        tokio::time::sleep(Duration::from_millis(probe.sleep_ms.into())).await;
    }
    match probe.then {
        Some(Trouble::Hang) => std::future::pending().await,
        Some(Trouble::Abort) => std::process::abort(),
        Some(Trouble::Panic) => panic!("the probe was told to panic"),
        Some(Trouble::Throttle) => return Err(JobError::Throttled(Duration::from_secs(1))),
        None => {}
    }
    if held.job.attempt < u64::from(probe.fail) {
        let message = format!("the probe was told to fail {} times", probe.fail);
        return Err(JobError::Failed { class: "probe", message });
    }
    let mut unit = held.write();
    unit.record_probe(&held.job);
    if probe.children > 0 {
        let child = Probe { children: probe.children - 1, ..probe };
        let mut follow_up = held.follow_up(&child).map_err(anyhow::Error::from)?;
        follow_up.lane = held.job.lane;
        unit.enqueue(vec![follow_up]);
    }
    Ok(Verdict::Commit(unit))
}
