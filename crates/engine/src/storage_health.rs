//! Tells our own trouble from that of a message: when a write fails and a probe write fails as well, storage is to blame, and
//! work waits for it without spending attempts.
//!
//! A process probes once at a time, and what it finds holds for all until the pause is over, which doubles each time: ten
//! thousand mailboxes must not each find out by themselves.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use content::spool::Spool;
use domain::metrics as catalogue;
use domain::redact_for_log;
use jiff::Timestamp;
use jobs::JobError;

use crate::Engine;
use crate::retry_policies::{STORAGE_FIRST_PAUSE, STORAGE_MAX_PAUSE};

/// As much as a small batch of mail: what is left on a full disk must not pass for room.
const PROBE_BYTES: usize = 256 << 10;

/// A part of our storage. The database is not among them: its errors tell by themselves, and what cannot be written to it
/// cannot be counted either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoragePart {
    Blobs,
    /// The disk of the data folder, which has the spool.
    Disk,
}

/// Trouble of our own storage, found by a probe write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageTrouble {
    pub part: StoragePart,
    pub since: Timestamp,
    /// When the next probe is due.
    pub until: Timestamp,
    /// Probes that failed in a row.
    pub failed_probes: u32,
    /// When the last one failed.
    probed_at: Timestamp,
}

/// What this process knows of its storage. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct StorageHealth {
    state: Arc<Mutex<HealthState>>,
    /// Held by the one probe in flight.
    probing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct HealthState {
    trouble: Option<StorageTrouble>,
    /// The number of the probe that began last, and of the one whose result is known.
    begun: u64,
    settled: u64,
}

impl StoragePart {
    const ALL: [Self; 2] = [Self::Blobs, Self::Disk];

    fn as_str(self) -> &'static str {
        match self {
            Self::Blobs => "blobs",
            Self::Disk => "disk",
        }
    }
}

impl StorageTrouble {
    /// Returns the reason for people, without details of the installation, as the middle of a sentence.
    pub fn reason(&self) -> &'static str {
        match self.part {
            StoragePart::Blobs => "blob storage cannot be written",
            StoragePart::Disk => "the disk of the data folder cannot be written",
        }
    }

    /// Returns how long until the next probe.
    pub fn wait(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.until.duration_since(now)).unwrap_or_default()
    }

    /// Puts a job off until the next probe, without spending an attempt.
    pub(crate) fn into_job_error(self, now: Timestamp) -> JobError {
        JobError::Waiting { delay: self.wait(now), reason: self.reason().to_owned() }
    }

    fn is_pending(&self, now: Timestamp) -> bool {
        // A clock that was set back must not make the pause longer.
        (self.probed_at..self.until).contains(&now)
    }
}

impl StorageHealth {
    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the result of a probe and returns the trouble, if there is any.
    fn settle(&self, probe: u64, failure: Option<(StoragePart, String)>, now: Timestamp) -> Option<StorageTrouble> {
        let mut state = self.state();
        let before = state.trouble.take();
        state.settled = probe;
        let failed = failure.as_ref().map(|(part, _)| *part);
        for part in StoragePart::ALL {
            let is_failing = f64::from(u8::from(failed == Some(part)));
            metrics::gauge!(catalogue::STORAGE_TROUBLE, "part" => part.as_str()).set(is_failing);
        }
        match failure {
            None if before.is_some() => tracing::info!("storage takes writes again"),
            None => {}
            Some((part, error)) => {
                let failed_probes = before.as_ref().map_or(0, |before| before.failed_probes) + 1;
                let pause = STORAGE_FIRST_PAUSE.saturating_mul(1 << (failed_probes - 1).min(16)).min(STORAGE_MAX_PAUSE);
                tracing::error!(part = part.as_str(), error = redact_for_log(&error), retry_in = ?pause, "storage takes no writes");
                let since = before.map_or(now, |before| before.since);
                let until = now.checked_add(pause).unwrap_or(now);
                state.trouble = Some(StorageTrouble { part, since, until, failed_probes, probed_at: now });
            }
        }
        state.trouble.clone()
    }
}

impl Engine {
    /// Returns the trouble of our own storage that this process knows of, without a probe.
    pub fn storage_trouble(&self) -> Option<StorageTrouble> {
        self.storage.state().trouble.clone()
    }

    /// Probes the storage, unless it is known to fail and its pause is not over. Callers at the same time share one probe:
    /// one that began after they called.
    pub async fn check_storage(&self) -> Option<StorageTrouble> {
        let called_at = self.storage.state().begun;
        if let Some(known) = self.pending_trouble() {
            return Some(known);
        }
        let _one = self.storage.probing.lock().await;
        if let Some(known) = self.pending_trouble() {
            return Some(known);
        }
        let probe = {
            let mut state = self.storage.state();
            if state.settled > called_at {
                return state.trouble.clone();
            }
            state.begun += 1;
            state.begun
        };
        let failure = self.probe_storage().await;
        self.storage.settle(probe, failure, self.store.clock().now())
    }

    /// Returns whether blob storage takes nothing now: by what is known, or else by a probe.
    pub(crate) async fn check_blobs(&self) -> Option<StorageTrouble> {
        self.check_storage().await.filter(|trouble| trouble.part == StoragePart::Blobs)
    }

    /// Decides whose trouble an error of storage is: a job waits for ours, and otherwise has failed.
    pub(crate) async fn judge_storage_error(&self, message: String) -> JobError {
        match self.check_storage().await {
            Some(trouble) => trouble.into_job_error(self.store.clock().now()),
            None => JobError::Failed { class: "storage", message },
        }
    }

    /// Returns the known trouble while its pause lasts.
    fn pending_trouble(&self) -> Option<StorageTrouble> {
        self.storage_trouble().filter(|trouble| trouble.is_pending(self.store.clock().now()))
    }

    async fn probe_storage(&self) -> Option<(StoragePart, String)> {
        let spool = self.spool.clone();
        let spooled = tokio::task::spawn_blocking(move || probe_spool(&spool)).await;
        if let Ok(Err(e)) = spooled {
            return Some((StoragePart::Disk, e.to_string()));
        }
        let written = self.blobs.probe().await;
        written.err().map(|e| (StoragePart::Blobs, e.to_string()))
    }
}

fn probe_spool(spool: &Spool) -> std::io::Result<()> {
    spool.create()?.write_all(&[0; PROBE_BYTES])
}
