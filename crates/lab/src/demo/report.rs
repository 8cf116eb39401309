//! The report of a demo that ends by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use terminal::{Failure, Output, count, one_line, size};

use super::check::{ComparisonReport, MailboxComparison};
use super::memory::{MemorySamples, MemoryThirds};
use super::providers::ProviderActivity;

/// With so many changes or faults, each provider has some.
const ENOUGH_EVENTS: f64 = 30.0;

/// Number of reasons that are shown one by one.
const MAX_REASONS_SHOWN: usize = 20;

/// Everything that a demo measured and compared.
pub struct DemoReport {
    pub comparison: ComparisonReport,
    pub memory: MemorySamples,
    pub faults: u64,
    pub activity: ProviderActivity,
    /// About how many changes the traffic should have had.
    pub expected_changes: f64,
    pub took: Duration,
    pub traffic: Duration,
}

impl DemoReport {
    fn thirds(&self) -> Option<MemoryThirds> {
        self.memory.thirds()
    }

    /// Returns why it is not good; empty if it is.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.comparison.reasons();
        if let Some(thirds) = self.thirds().filter(|thirds| !thirds.is_flat) {
            reasons.push(format!(
                "the server's memory grows: {} in the middle third of the time, {} in the last",
                size(thirds.middle),
                size(thirds.last)
            ));
        }
        reasons.extend(self.missing_activity());
        reasons
    }

    /// Returns what should have happened and did not: without it the demo shows less than it seems.
    fn missing_activity(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.expected_changes >= ENOUGH_EVENTS {
            let ProviderActivity { changes, pushes, .. } = &self.activity;
            missing.extend(idle_providers(changes).map(|name| format!("nothing changed at {name}")));
            missing.extend(idle_providers(pushes).map(|name| format!("nothing that {name} pushed was taken")));
        }
        if self.faults as f64 >= ENOUGH_EVENTS && self.activity.faults_met == 0 {
            missing.push("no fault came".to_owned());
        }
        missing
    }

    pub fn show(&self, out: Output) -> Result<(), Failure> {
        let (comparison, reasons) = (&self.comparison, self.reasons());
        let [there, here, emails] = comparison.totals();
        if out.json {
            return out.object(&json!({
                "complete": reasons.is_empty(), "reasons": reasons, "mailboxes": comparison.mailboxes.len(),
                "there": there, "here": here, "emails": emails,
                "stuck_jobs": comparison.stuck_jobs.len(), "dead_letters": comparison.dead_letters.len(),
                "faults": self.faults, "happened": self.activity, "memory": self.thirds(),
                "memory_samples": self.memory.samples(),
                "traffic_seconds": self.traffic.as_secs_f64(), "seconds": self.took.as_secs_f64(),
            }));
        }
        let rows: Vec<[String; 6]> = comparison.mailboxes.iter().map(row).collect();
        out.table(["tenant", "mailbox", "provider", "there", "here", "emails"], &rows)?;
        out.line("")?;
        if let Some(thirds) = self.thirds() {
            out.line(&format!(
                "Memory of the server over {} s of traffic with {} changes, {} pushes and {} faults, by thirds: {}, {}, {}; {} \
                 at most.",
                self.traffic.as_secs(),
                count(self.activity.changes.values().sum()),
                count(self.activity.pushes.values().sum()),
                count(self.faults),
                size(thirds.first),
                size(thirds.middle),
                size(thirds.last),
                size(thirds.most)
            ))?;
        }
        for reason in reasons.iter().take(MAX_REASONS_SHOWN) {
            out.line(&format!("  {}", one_line(reason, 300)))?;
        }
        if reasons.len() > MAX_REASONS_SHOWN {
            out.line(&format!("  and {} more", count((reasons.len() - MAX_REASONS_SHOWN) as u64)))?;
        }
        let verdict = if reasons.is_empty() {
            "everything is here once, every byte reads back, and no job is left"
        } else {
            "NOT everything is as it should be"
        };
        out.line(&format!(
            "{} places of {} messages in {} mailboxes at three providers: {verdict}. Done in {:.1} s.",
            count(there),
            count(emails),
            comparison.mailboxes.len(),
            self.took.as_secs_f64()
        ))
    }
}

/// Returns the providers with a count of 0.
fn idle_providers(counts: &BTreeMap<&'static str, u64>) -> impl Iterator<Item = &'static str> {
    counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name)
}

fn row(mailbox: &MailboxComparison) -> [String; 6] {
    [
        mailbox.tenant.to_owned(),
        mailbox.address.clone(),
        mailbox.provider.to_owned(),
        count(mailbox.there),
        count(mailbox.here),
        count(mailbox.emails),
    ]
}
