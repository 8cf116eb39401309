//! How a demo that ends by itself went.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::check::Checked;
use super::memory::{Memory, Thirds};
use super::providers::Happened;
use crate::failure::Failure;
use crate::output::{Output, count, one_line, size};

/// With so many, each provider has some.
const ENOUGH: f64 = 30.0;

/// More differences than anybody reads one by one.
const SHOWN: usize = 20;

pub struct Report {
    pub checked: Checked,
    pub memory: Memory,
    pub faults: u64,
    pub happened: Happened,
    /// About how many changes the traffic was to have.
    pub expected: f64,
    pub took: Duration,
    pub traffic: Duration,
}

impl Report {
    fn thirds(&self) -> Option<Thirds> {
        self.memory.thirds()
    }

    /// Why it is not good; nothing: it is.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.checked.reasons();
        if let Some(thirds) = self.thirds().filter(|thirds| !thirds.is_flat) {
            reasons.push(format!(
                "the server's memory grows: {} in the middle third of the time, {} in the last",
                size(thirds.middle),
                size(thirds.last)
            ));
        }
        reasons.extend(self.idle());
        reasons
    }

    /// What did not happen though it was to: then the rest shows less than it seems.
    fn idle(&self) -> Vec<String> {
        let mut idle = Vec::new();
        if self.expected >= ENOUGH {
            let Happened { changes, pushes, .. } = &self.happened;
            let without = |of: &BTreeMap<&'static str, u64>| -> Vec<&str> {
                of.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect()
            };
            idle.extend(without(changes).iter().map(|name| format!("nothing changed at {name}")));
            idle.extend(without(pushes).iter().map(|name| format!("nothing that {name} pushed was taken")));
        }
        if self.faults as f64 >= ENOUGH && self.happened.faults_met == 0 {
            idle.push("no fault came".to_owned());
        }
        idle
    }

    pub fn show(&self, out: Output) -> Result<(), Failure> {
        let (checked, reasons) = (&self.checked, self.reasons());
        let sum = |of: fn(&super::check::MailboxCheck) -> u64| checked.mailboxes.iter().map(of).sum::<u64>();
        if out.json {
            return out.object(&json!({
                "complete": reasons.is_empty(), "reasons": reasons, "mailboxes": checked.mailboxes.len(),
                "there": sum(|one| one.there), "here": sum(|one| one.here), "emails": sum(|one| one.emails),
                "stuck_jobs": checked.stuck_jobs.len(), "dead_letters": checked.dead_letters.len(),
                "faults": self.faults, "happened": self.happened, "memory": self.thirds(), "memory_samples": self.memory.samples(),
                "traffic_seconds": self.traffic.as_secs_f64(), "seconds": self.took.as_secs_f64(),
            }));
        }
        let row = |one: &super::check::MailboxCheck| {
            let (there, here) = (count(one.there), count(one.here));
            [one.tenant.to_owned(), one.address.clone(), one.provider.to_owned(), there, here, count(one.emails)]
        };
        let rows: Vec<[String; 6]> = checked.mailboxes.iter().map(row).collect();
        out.table(["tenant", "mailbox", "provider", "there", "here", "emails"], &rows)?;
        out.line("")?;
        if let Some(thirds) = self.thirds() {
            out.line(&format!(
                "Memory of the server over {} s of traffic with {} changes, {} pushes and {} faults, by thirds: {}, {}, {}; {} \
                 at most.",
                self.traffic.as_secs(),
                count(self.happened.changes.values().sum()),
                count(self.happened.pushes.values().sum()),
                count(self.faults),
                size(thirds.first),
                size(thirds.middle),
                size(thirds.last),
                size(thirds.most)
            ))?;
        }
        for reason in reasons.iter().take(SHOWN) {
            out.line(&format!("  {}", one_line(reason, 300)))?;
        }
        if reasons.len() > SHOWN {
            out.line(&format!("  and {} more", count((reasons.len() - SHOWN) as u64)))?;
        }
        let verdict = match reasons.is_empty() {
            true => "everything is here once, every byte reads back, and no job is left",
            false => "NOT everything is as it should be",
        };
        out.line(&format!(
            "{} places of {} messages in {} mailboxes at three providers: {verdict}. Done in {:.1} s.",
            count(sum(|one| one.there)),
            count(sum(|one| one.emails)),
            checked.mailboxes.len(),
            self.took.as_secs_f64()
        ))
    }
}
