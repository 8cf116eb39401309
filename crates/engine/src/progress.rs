//! The progress of a long operation.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters written by the operation and read by a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    items: AtomicU64,
}

impl Progress {
    pub fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    pub fn add_done(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    pub fn add_items(&self, items: u64) {
        self.items.fetch_add(items, Ordering::Relaxed);
    }

    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns what is done, in the unit of the total.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the number of messages or blobs.
    pub fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }
}
