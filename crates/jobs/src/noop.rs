//! A job that does nothing: for benchmarks, and to try out the queue.

use serde::{Deserialize, Serialize};

use crate::kind::{Completion, Job, JobKind};

/// Does nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Noop {}

impl Job for Noop {
    const KIND: &'static str = "noop";
}

pub fn kind() -> JobKind {
    JobKind::new(|_, _: Noop| async { Ok(Completion::Done) })
}
