//! Everything that is wrong is mended, all that is left is done, and what is here is compared with what is there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use domain::{JobState, MailboxState};
use store::sql::jobs::{JobRow, Replay};

use super::check::{self, Checked};
use super::providers::{CONTRACTOR, MISNAMED};
use super::scene::Scene;
use crate::failure::Failure;

const LOOK: Duration = Duration::from_millis(300);

/// Jobs that are the same after so long, with nothing stored meanwhile, are stuck.
const STUCK: Duration = Duration::from_secs(120);

/// Once every mailbox was looked at so often, with nothing left to do, a difference is one.
const LOOKS: usize = 6;

pub async fn settle(scene: &mut Scene) -> Result<Checked, Failure> {
    scene.providers.heal();
    mend(scene).await?;
    let mut checked = Checked::default();
    for _ in 0..LOOKS {
        scene.providers.remind();
        for mailbox in scene.mailboxes().await? {
            match mailbox.state {
                MailboxState::Paused | MailboxState::Disconnected => {
                    return Err(Failure::problem(format!(
                        "{} is {} and never becomes what it is there",
                        mailbox.address,
                        mailbox.state.as_str()
                    )));
                }
                _ => scene.engine.request_sync(&mailbox).await?,
            }
        }
        let stuck = become_quiet(scene).await?;
        checked = check::check(scene).await?;
        checked.stuck_jobs = stuck.iter().map(named).collect();
        if checked.is_good() || !stuck.is_empty() {
            break;
        }
    }
    Ok(checked)
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

/// Who was refused goes on: the contractor says yes once more, and our app is let in everywhere else.
async fn help(scene: &Scene) -> Result<(), Failure> {
    for mailbox in scene.mailboxes().await? {
        if mailbox.state != MailboxState::NeedsReauth {
            continue;
        }
        if mailbox.address == CONTRACTOR {
            let consent = serde_json::json!({"refresh_token": scene.consent_of_contractor()?});
            let path = format!("/v1/mailboxes/{}", mailbox.id);
            scene.api.patch(&path, Some(&mailbox.tenant_id.to_string()), &consent).await?;
        } else {
            scene.engine.resume_mailbox(&mailbox, None).await?;
        }
    }
    Ok(())
}

/// Until nothing is left to do, at two looks in a row. What waits for its time is done now. Those that do not end.
async fn become_quiet(scene: &mut Scene) -> Result<Vec<JobRow>, Failure> {
    let (mut before, mut since, mut quiet) = ((BTreeSet::new(), 0), Instant::now(), 0);
    loop {
        scene.server.check()?;
        help(scene).await?;
        let open = scene.open_jobs().await?;
        quiet = if open.is_empty() && scene.providers.have_told_all() { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(Vec::new());
        }
        let now = (open.iter().map(|job| job.id).collect(), scene.look().await?.emails);
        if now != before {
            (before, since) = (now, Instant::now());
        }
        if since.elapsed() > STUCK {
            return Ok(open);
        }
        hurry(scene, &open).await?;
        tokio::time::sleep(LOOK).await;
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
