//! Ends the demo's problems, waits until all jobs are done, and compares what is stored with what the providers have.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::{JobId, JobState, MailboxState};
use jiff::SignedDuration;
use store::sql::jobs::{JobRow, ReplayOptions};
use terminal::Failure;

use super::check::{self, ComparisonReport};
use super::folder::DemoFolder;
use super::providers::{CONTRACTOR, MISNAMED};
use super::system::DemoSystem;

const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Age at which an open job is stuck, if nothing was stored meanwhile.
const STUCK_JOB_AGE: Duration = Duration::from_secs(120);

/// If nothing was stored for so long, all open jobs are stuck, even if they replace each other all the time.
const MAX_IDLE_TIME: Duration = Duration::from_secs(600);

/// Longer than a healthy mailbox or job waits for its time.
const MAX_DELAY: SignedDuration = SignedDuration::from_hours(1);

/// Longer than a mailbox waits for its turn once its sync is due.
const MAX_LATENESS: SignedDuration = SignedDuration::from_mins(10);

/// Number of syncs of each mailbox after which a difference counts.
const MAX_SYNC_ROUNDS: usize = 6;

pub async fn settle(system: &mut DemoSystem, folder: &DemoFolder) -> Result<ComparisonReport, Failure> {
    system.providers.clear_faults();
    let unexpected = find_unexpected_states(system).await?;
    replay_misnamed_job(system).await?;
    let mut comparison = ComparisonReport::default();
    for _ in 0..MAX_SYNC_ROUNDS {
        system.providers.send_missed_notifications();
        for mailbox in system.mailboxes().await?.iter().filter(|mailbox| mailbox.state.is_synced()) {
            system.engine.request_sync(mailbox).await?;
        }
        let stuck = wait_until_idle(system).await?;
        comparison = check::check(system, folder).await?;
        let is_over = comparison.is_good() || !stuck.is_empty();
        comparison.stuck_jobs = stuck;
        if is_over {
            break;
        }
    }
    comparison.differences.extend(unexpected);
    Ok(comparison)
}

/// Returns what would not have recovered by itself, before any repair: mailboxes that have stopped, and mailboxes and jobs that
/// wait for a time that is too far away.
async fn find_unexpected_states(system: &DemoSystem) -> Result<Vec<String>, Failure> {
    let (store, mut unexpected) = (&system.engine.store, Vec::new());
    let now = store.clock().now();
    for mailbox in system.mailboxes().await?.iter().filter(|mailbox| mailbox.address != CONTRACTOR) {
        let (address, state) = (&mailbox.address, mailbox.state.as_str());
        if !mailbox.state.is_synced() {
            unexpected.push(format!("{address} became {state} before anything was mended"));
            continue;
        }
        let next =
            store.tenant(mailbox.tenant_id).find_sync_state(mailbox.id).await?.and_then(|sync| sync.next_sync_at);
        if next.is_none_or(|next| next > now + MAX_DELAY || next < now - MAX_LATENESS) {
            let next = next.map_or("never".to_owned(), |next| format!("at {next}"));
            unexpected.push(format!("{address} was to be looked at {next}, before anything was mended"));
        }
    }
    for job in system.open_jobs().await? {
        if job.run_at.is_some_and(|run_at| run_at > now + MAX_DELAY) {
            unexpected.push(format!("a job waits for too long: {}", job_line(&job)));
        }
    }
    Ok(unexpected)
}

/// Replays the demo's own dead letter with the right payload. Others stay: there should be none.
async fn replay_misnamed_job(system: &DemoSystem) -> Result<(), Failure> {
    for dead in system.dead_letters().await? {
        if dead.payload["mailbox"] == MISNAMED {
            let replay = ReplayOptions { payload: Some(system.corrected_payload().await?), ..ReplayOptions::default() };
            system.engine.store.system().replay_one(dead.tenant_id, dead.id, &replay).await?;
        }
    }
    Ok(())
}

/// Gives the contractor's mailbox a new consent, if it needs one.
async fn renew_consent(system: &DemoSystem) -> Result<(), Failure> {
    let mut mailboxes = system.mailboxes().await?;
    mailboxes.retain(|mailbox| mailbox.state == MailboxState::NeedsReauth && mailbox.address == CONTRACTOR);
    for mailbox in mailboxes {
        let consent = serde_json::json!({"refresh_token": system.grant_contractor_token()?});
        let path = format!("/v1/mailboxes/{}", mailbox.id);
        system.api.patch(&path, Some(&mailbox.tenant_id.to_string()), &consent).await?;
    }
    Ok(())
}

/// Waits until nothing is left to do, twice in a row; jobs that wait for their time run now. Returns the jobs that are stuck.
async fn wait_until_idle(system: &mut DemoSystem) -> Result<Vec<String>, Failure> {
    let (mut detector, mut idle_checks) = (StuckJobDetector::new(Instant::now()), 0);
    loop {
        system.server.check_running()?;
        renew_consent(system).await?;
        let open = system.open_jobs().await?;
        let has_pushed_all = system.providers.has_pushed_all();
        idle_checks = if open.is_empty() && has_pushed_all { idle_checks + 1 } else { 0 };
        if idle_checks == 2 {
            return Ok(Vec::new());
        }
        let ids: Vec<JobId> = open.iter().map(|job| job.id).collect();
        if let Some(stuck) = detector.find_stuck(&ids, system.status().await?.emails, Instant::now()) {
            let mut names: Vec<String> = open.iter().filter(|job| stuck.contains(&job.id)).map(job_line).collect();
            names.extend((!has_pushed_all).then(|| "what the providers have to tell is not taken".to_owned()));
            names.extend(names.is_empty().then(|| "one follows the other".to_owned()));
            return Ok(names);
        }
        run_waiting_jobs(system, &open).await?;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Detects jobs that do not end, by how long each is open and how long nothing was stored.
struct StuckJobDetector {
    open: BTreeMap<JobId, Instant>,
    emails: u64,
    last_stored: Instant,
}

impl StuckJobDetector {
    fn new(now: Instant) -> Self {
        Self { open: BTreeMap::new(), emails: 0, last_stored: now }
    }

    /// Returns the jobs that do not end, once that is certain.
    fn find_stuck(&mut self, open: &[JobId], emails: u64, now: Instant) -> Option<Vec<JobId>> {
        if emails != self.emails {
            (self.emails, self.last_stored) = (emails, now);
        }
        self.open = open.iter().map(|job| (*job, self.open.get(job).copied().unwrap_or(now))).collect();
        let idle = now - self.last_stored;
        let old = self.open.iter().filter(|(_, since)| now - **since >= STUCK_JOB_AGE);
        let old: Vec<JobId> = old.map(|(job, _)| *job).collect();
        match idle {
            _ if idle >= MAX_IDLE_TIME => Some(open.to_vec()),
            _ if idle >= STUCK_JOB_AGE && !old.is_empty() => Some(old),
            _ => None,
        }
    }
}

/// Runs the jobs now that wait for their time.
async fn run_waiting_jobs(system: &DemoSystem, open: &[JobRow]) -> Result<(), Failure> {
    let store = &system.engine.store;
    let waiting = open.iter().filter(|job| matches!(job.state, JobState::Scheduled | JobState::Retry));
    let mut has_any = false;
    for job in waiting {
        store.system().retry_now(job.id).await?;
        has_any = true;
    }
    if has_any {
        store.notify_other_processes().await?;
    }
    Ok(())
}

fn job_line(job: &JobRow) -> String {
    format!("{} {} ({}, attempt {}) {}", job.kind, job.id, job.state.as_str(), job.attempt, job.payload)
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn job() -> JobId {
        JobId::new(&SystemClock)
    }

    #[test]
    fn stuck_job_is_found_among_jobs_that_end() {
        let (begun, stuck) = (Instant::now(), job());
        let mut detector = StuckJobDetector::new(begun);
        for second in 0..120 {
            assert_eq!(detector.find_stuck(&[job(), stuck], 5, begun + SECOND * second), None);
        }
        assert_eq!(detector.find_stuck(&[job(), stuck], 5, begun + SECOND * 120), Some(vec![stuck]));
    }

    #[test]
    fn long_job_is_not_stuck_while_emails_are_stored() {
        let (begun, long) = (Instant::now(), job());
        let mut detector = StuckJobDetector::new(begun);
        for second in 0..1_000 {
            assert_eq!(detector.find_stuck(&[long], u64::from(second / 60), begun + SECOND * second), None);
        }
        assert_eq!(detector.find_stuck(&[long], 16, begun + SECOND * 1_100), Some(vec![long]));
    }

    #[test]
    fn jobs_that_replace_each_other_for_ever_are_stuck() {
        let begun = Instant::now();
        let mut detector = StuckJobDetector::new(begun);
        for second in 0..600 {
            assert_eq!(detector.find_stuck(&[job()], 5, begun + SECOND * second), None);
        }
        assert!(detector.find_stuck(&[job()], 5, begun + SECOND * 600).is_some());
    }
}
