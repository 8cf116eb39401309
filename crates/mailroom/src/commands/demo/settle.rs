//! Everything that is wrong is mended, all that is left is done, and what is here is compared with what is there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::{JobId, JobState, MailboxState};
use jiff::SignedDuration;
use store::sql::jobs::{JobRow, Replay};
use store::sql::mailboxes::Mailbox;

use super::check::{self, Checked};
use super::place::Place;
use super::providers::{CONTRACTOR, MISNAMED};
use super::scene::Scene;
use crate::failure::Failure;

const LOOK: Duration = Duration::from_millis(300);

/// A job that is open for so long, with nothing stored meanwhile, is stuck.
const STUCK: Duration = Duration::from_secs(120);

/// Without anything stored for so long, what is open then is stuck, even if others take its place all the time.
const NEVER_ENDS: Duration = Duration::from_secs(600);

/// Longer than anything waits that is well, and longer than anything that is due waits for its turn.
const FAR: SignedDuration = SignedDuration::from_hours(1);
const LATE: SignedDuration = SignedDuration::from_mins(10);

/// Once every mailbox was looked at so often, with nothing left to do, a difference is one.
const LOOKS: usize = 6;

pub async fn settle(scene: &mut Scene, place: &Place) -> Result<Checked, Failure> {
    scene.providers.heal();
    let astray = astray(scene).await?;
    mend(scene).await?;
    let mut checked = Checked::default();
    for _ in 0..LOOKS {
        scene.providers.remind();
        for mailbox in scene.mailboxes().await?.iter().filter(|mailbox| mailbox.state.is_synced()) {
            scene.engine.request_sync(mailbox).await?;
        }
        let stuck = become_quiet(scene).await?;
        checked = check::check(scene, place).await?;
        let is_over = checked.is_good() || !stuck.is_empty();
        checked.stuck_jobs = stuck;
        if is_over {
            break;
        }
    }
    checked.differences.extend(astray);
    Ok(checked)
}

/// What would not have come right by itself, before anything is mended: who stopped though nobody told them to, and what
/// waits for a time that is too far away.
async fn astray(scene: &Scene) -> Result<Vec<String>, Failure> {
    let (store, mut astray) = (&scene.engine.store, Vec::new());
    let now = store.clock().now();
    for mailbox in scene.mailboxes().await?.iter().filter(|mailbox| mailbox.address != CONTRACTOR) {
        let (address, state) = (&mailbox.address, mailbox.state.as_str());
        if !mailbox.state.is_synced() {
            astray.push(format!("{address} became {state} before anything was mended"));
            continue;
        }
        let next = store.tenant(mailbox.tenant_id).find_sync(mailbox.id).await?.and_then(|sync| sync.next_sync_at);
        if next.is_none_or(|next| next > now + FAR || next < now - LATE) {
            let next = next.map_or("never".to_owned(), |next| format!("at {next}"));
            astray.push(format!("{address} was to be looked at {next}, before anything was mended"));
        }
    }
    for job in scene.open_jobs().await? {
        if job.run_at.is_some_and(|run_at| run_at > now + FAR) {
            astray.push(format!("a job waits for too long: {}", named(&job)));
        }
    }
    Ok(astray)
}

/// The dead letter of the demo gets what it was to be about; others stay, for there should be none.
async fn mend(scene: &Scene) -> Result<(), Failure> {
    for dead in scene.dead_letters().await? {
        if dead.payload["mailbox"] == MISNAMED {
            let replay = Replay { payload: Some(scene.right_payload().await?), ..Replay::default() };
            scene.engine.store.system().replay_one(dead.tenant_id, dead.id, &replay).await?;
        }
    }
    Ok(())
}

/// The contractor says yes once more.
async fn consent_again(scene: &Scene) -> Result<(), Failure> {
    let is_refused = |mailbox: &Mailbox| mailbox.state == MailboxState::NeedsReauth && mailbox.address == CONTRACTOR;
    for mailbox in scene.mailboxes().await?.into_iter().filter(is_refused) {
        let consent = serde_json::json!({"refresh_token": scene.consent_of_contractor()?});
        let path = format!("/v1/mailboxes/{}", mailbox.id);
        scene.api.patch(&path, Some(&mailbox.tenant_id.to_string()), &consent).await?;
    }
    Ok(())
}

/// Until nothing is left to do, at two looks in a row. What waits for its time is done now. What does not end.
async fn become_quiet(scene: &mut Scene) -> Result<Vec<String>, Failure> {
    let (mut watched, mut quiet) = (Watched::new(Instant::now()), 0);
    loop {
        scene.server.check()?;
        consent_again(scene).await?;
        let open = scene.open_jobs().await?;
        let told = scene.providers.have_told_all();
        quiet = if open.is_empty() && told { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(Vec::new());
        }
        let ids: Vec<JobId> = open.iter().map(|job| job.id).collect();
        if let Some(stuck) = watched.stuck(&ids, scene.look().await?.emails, Instant::now()) {
            let mut names: Vec<String> = open.iter().filter(|job| stuck.contains(&job.id)).map(named).collect();
            names.extend((!told).then(|| "what the providers have to tell is not taken".to_owned()));
            names.extend(names.is_empty().then(|| "one follows the other".to_owned()));
            return Ok(names);
        }
        hurry(scene, &open).await?;
        tokio::time::sleep(LOOK).await;
    }
}

/// Since when each job is open, and since when nothing was stored.
struct Watched {
    open: BTreeMap<JobId, Instant>,
    emails: u64,
    stored: Instant,
}

impl Watched {
    fn new(now: Instant) -> Self {
        Self { open: BTreeMap::new(), emails: 0, stored: now }
    }

    /// Those that do not end, once that is certain.
    fn stuck(&mut self, open: &[JobId], emails: u64, now: Instant) -> Option<Vec<JobId>> {
        if emails != self.emails {
            (self.emails, self.stored) = (emails, now);
        }
        self.open = open.iter().map(|job| (*job, self.open.get(job).copied().unwrap_or(now))).collect();
        let idle = now - self.stored;
        let is_old = |since: Instant| now - since >= STUCK;
        let old: Vec<JobId> = self.open.iter().filter(|(_, since)| is_old(**since)).map(|(job, _)| *job).collect();
        match idle {
            _ if idle >= NEVER_ENDS => Some(open.to_vec()),
            _ if idle >= STUCK && !old.is_empty() => Some(old),
            _ => None,
        }
    }
}

async fn hurry(scene: &Scene, open: &[JobRow]) -> Result<(), Failure> {
    let store = &scene.engine.store;
    let waiting = open.iter().filter(|job| matches!(job.state, JobState::Scheduled | JobState::Retry));
    let mut is_any = false;
    for job in waiting {
        store.system().retry_now(job.id).await?;
        is_any = true;
    }
    if is_any {
        store.tell_of_jobs().await?;
    }
    Ok(())
}

fn named(job: &JobRow) -> String {
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
    fn a_job_that_does_not_end_is_found_among_others_that_come_and_go() {
        let (begun, stuck) = (Instant::now(), job());
        let mut watched = Watched::new(begun);
        let mut look = |second: u32| watched.stuck(&[job(), stuck], 5, begun + SECOND * second);
        assert!((0..120).all(|second| look(second).is_none()));
        assert_eq!(look(120), Some(vec![stuck]));
    }

    #[test]
    fn while_emails_come_in_a_long_job_is_well() {
        let (begun, long) = (Instant::now(), job());
        let mut watched = Watched::new(begun);
        let mut look = |second: u32, emails| watched.stuck(&[long], emails, begun + SECOND * second);
        assert!((0..1_000).all(|second| look(second, u64::from(second / 60)).is_none()));
        assert_eq!(look(1_100, 16), Some(vec![long]));
    }

    #[test]
    fn jobs_that_follow_each_other_for_ever_end_as_well() {
        let begun = Instant::now();
        let mut watched = Watched::new(begun);
        let mut look = |second: u32| watched.stuck(&[job()], 5, begun + SECOND * second);
        assert!((0..600).all(|second| look(second).is_none()));
        assert!(look(600).is_some());
    }
}
