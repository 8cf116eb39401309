//! The jobs of the sync as others request them. What they do when they run is in [`crate::jobs`].

use domain::{Clock, Lane, MailboxId, SecretId};
use jobs::{Job, JobContext, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, UniqueKey};

/// Syncs a mailbox: lists what has changed since its cursors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SyncMailbox {
    pub mailbox: MailboxId,
}

/// Lists the next page of the mail from before the first sync, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListHistory {
    pub mailbox: MailboxId,
}

/// Lists the next page of the whole mailbox, because its cursors have expired.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListMailbox {
    pub mailbox: MailboxId,
}

/// Removes what listings of a mailbox lack, once that is confirmed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoveMissing {
    pub(crate) mailbox: MailboxId,
}

/// Enqueues the jobs that fetch failed messages, when a person resumes the mailbox. Run twice, they are fetched once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchFailed {
    pub(crate) mailbox: MailboxId,
}

/// Enqueues fetches of queued messages without a fetch job, for the mailboxes of its tenant; as a job of the system, for
/// all tenants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchForgotten {}

/// Requests or renews the watch of a mailbox. Its row records when the next request is due, whatever the outcome, so the
/// job is not retried.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WatchMailbox {
    pub(crate) mailbox: MailboxId,
}

/// Ends the watch of a disconnected mailbox's account unless another mailbox has it. Then a job of its own revokes the
/// grant, which the call needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StopWatch {
    pub(crate) mailbox: MailboxId,
    /// The secret of the mailbox when it was disconnected.
    pub(crate) secret: Option<SecretId>,
}

impl Job for SyncMailbox {
    const KIND: &'static str = "sync_mailbox";
}

impl Job for ListHistory {
    const KIND: &'static str = "list_history";
    const LANE: Lane = Lane::Low;
}

impl Job for ListMailbox {
    const KIND: &'static str = "list_mailbox";
}

impl Job for RemoveMissing {
    const KIND: &'static str = "remove_missing";
}

impl Job for FetchFailed {
    const KIND: &'static str = "fetch_failed";
}

impl Job for FetchForgotten {
    const KIND: &'static str = "fetch_forgotten";
    const LANE: Lane = Lane::Low;
}

impl Job for WatchMailbox {
    const KIND: &'static str = "watch_mailbox";
}

impl Job for StopWatch {
    const KIND: &'static str = "stop_watch";
}

impl SyncMailbox {
    /// Requests a sync; one per mailbox is live at a time.
    pub fn request(clock: &dyn Clock, mailbox: MailboxId) -> Result<NewJob, serde_json::Error> {
        Ok(unique_per_mailbox(new_job(&Self { mailbox }, clock, None)?, mailbox))
    }

    /// Requests a sync in the trace of a running job.
    pub(crate) fn request_in(ctx: &JobContext, mailbox: MailboxId) -> Result<NewJob, serde_json::Error> {
        Ok(unique_per_mailbox(ctx.follow_up(&Self { mailbox })?, mailbox))
    }
}

impl RemoveMissing {
    pub fn request(clock: &dyn Clock, mailbox: MailboxId) -> Result<NewJob, serde_json::Error> {
        Ok(unique_per_mailbox(new_job(&Self { mailbox }, clock, None)?, mailbox))
    }
}

impl FetchFailed {
    pub fn request(clock: &dyn Clock, mailbox: MailboxId) -> Result<NewJob, serde_json::Error> {
        new_job(&Self { mailbox }, clock, None)
    }
}

impl FetchForgotten {
    /// Requests the fetches for a mailbox that is active again and should not wait for the schedule. Many at once share
    /// one job.
    pub fn request(clock: &dyn Clock) -> Result<NewJob, serde_json::Error> {
        let job = new_job(&Self {}, clock, None)?;
        Ok(NewJob { unique: Some(UniqueKey { key: Self::KIND.to_owned(), policy: OnConflict::Merge }), ..job })
    }
}

impl WatchMailbox {
    pub fn request(clock: &dyn Clock, mailbox: MailboxId) -> Result<NewJob, serde_json::Error> {
        let job = new_job(&Self { mailbox }, clock, None)?;
        Ok(NewJob { order_key: Some(watch_order(mailbox)), ..unique_per_mailbox(job, mailbox) })
    }
}

impl StopWatch {
    pub fn request(
        clock: &dyn Clock,
        mailbox: MailboxId,
        secret: Option<SecretId>,
    ) -> Result<NewJob, serde_json::Error> {
        let job = new_job(&Self { mailbox, secret }, clock, None)?;
        Ok(NewJob { order_key: Some(watch_order(mailbox)), ..job })
    }
}

/// Returns the order key: requests and ends of a watch run one after the other, so that none comes after its end.
fn watch_order(mailbox: MailboxId) -> String {
    format!("watch:{mailbox}")
}

/// Makes a job unique per kind and mailbox. Enqueued while it runs, it runs once more.
pub(super) fn unique_per_mailbox(job: NewJob, mailbox: MailboxId) -> NewJob {
    NewJob { unique: Some(UniqueKey { key: mailbox.to_string(), policy: OnConflict::Merge }), ..job }
}
