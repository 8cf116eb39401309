//! Messages that wait to be fetched and that no job is about: somebody cancelled it, it went wrong too often, or whose they
//! are had left.

use domain::{Clock, Lane, TenantId};
use jobs::{Held, Job, JobError, Kind, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, Unique};

use crate::sync::FetchEmails;

/// Looks for such messages in the mailboxes of its tenant; as a job of the system, in those of all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchForgotten {}

impl Job for FetchForgotten {
    const KIND: &'static str = "fetch_forgotten";
    const LANE: Lane = Lane::Low;
}

impl FetchForgotten {
    /// Somebody is back, and need not wait until it is time for it. Many who come back together ask once.
    pub fn now(clock: &dyn Clock) -> anyhow::Result<NewJob> {
        let job = new_job(&Self {}, clock, None)?;
        Ok(NewJob { unique: Some(Unique { key: Self::KIND.to_owned(), policy: OnConflict::Merge }), ..job })
    }
}

/// Messages that are asked for in one commit; the next time asks for more.
const BATCH: u64 = 5000;

pub(super) fn kind() -> Kind {
    Kind::new(|held, _: FetchForgotten| async move { run(&held).await })
}

async fn run(held: &Held) -> Result<Verdict, JobError> {
    let only = Some(held.tenant()).filter(|tenant| *tenant != TenantId::SYSTEM);
    for (tenant, mailbox) in held.store.system().list_forgetful_mailboxes(only).await? {
        held.progress();
        let store = held.store.tenant(tenant);
        let messages = store.list_open_messages(mailbox, BATCH).await?;
        if messages.is_empty() {
            continue; // all that it has are dead letters
        }
        tracing::warn!(%mailbox, messages = messages.len(), "messages that nobody was about to fetch are asked for again");
        let mut unit = store.write();
        unit.enqueue(FetchEmails::of_any_size(mailbox, &messages, held.store.clock())?);
        unit.commit().await?;
    }
    Ok(Verdict::Done)
}
