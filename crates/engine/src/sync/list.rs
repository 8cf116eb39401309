//! The three listings of a mailbox: changes since the last sync, history from before the first sync, and a full
//! listing that is compared with the ledger.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use domain::connector::{Cursors, ListedFolder, ListingPage, Placement, SeenMessage};
use domain::metrics as catalogue;
use domain::{ConnectorError, EventType, Lane, LedgerState, MailboxId, MailboxState, redact_for_log};
use futures_util::FutureExt;
use jiff::Timestamp;
use jobs::{Completion, Job, JobContext, JobError, panic_message, storage_fault};
use serde_json::json;
use store::failpoint::Effect;
use store::sql::jobs::NewJob;
use store::sql::ledger::LedgerEntry;
use store::sql::sync::{ListingPhase, MailboxKey, PageRows, SyncClaim, SyncEnd, SyncState};
use store::{StorageFault, TenantStore, TenantUnit};

use super::fetch::FetchEmails;
use super::lease::SyncLease;
use super::missing::MissingFolders;
use super::requests::{ListHistory, ListMailbox, RemoveMissing, SyncMailbox, unique_per_mailbox};
use super::states::{self, StateChange};
use super::{LEASE_RETRY_DELAY, MailboxSession, Syncer, end_without_work, job_error};
use crate::retry_policies::SYNC_RETRY;
use crate::sync::push::request_watch_again;

impl Syncer {
    /// Lists the next page or pages of a mailbox, under its lease.
    pub(crate) async fn list(
        &self,
        ctx: &JobContext,
        mailbox: MailboxId,
        phase: ListingPhase,
    ) -> Result<Completion, JobError> {
        let session = match self.open(ctx.tenant(), mailbox).await {
            Ok(Some(session)) => session,
            Ok(None) => return end_without_work(&self.engine.store.tenant(ctx.tenant())).await,
            Err(e) if storage_fault(&e) == Some(StorageFault::Certain) => return Err(e.into()),
            Err(e) => return self.fail_open(ctx, mailbox, e).await,
        };
        let store = self.engine.store.tenant(ctx.tenant());
        let lease = (&*self.settings.holder, self.settings.lease);
        let lease = SyncLease::acquire(&self.gate, &self.statement_batchers, &store, mailbox, lease).await?;
        let acquired = if lease.is_some() { "true" } else { "false" };
        metrics::counter!(catalogue::SYNC_ATTEMPTS, "acquired" => acquired).increment(1);
        let Some((lease, begun)) = lease else { return Err(JobError::Deferred(LEASE_RETRY_DELAY)) };
        let listing = MailboxListing { sync: self, ctx, store, session, lease, phase };
        let run = AssertUnwindSafe(async {
            listing.check(&begun).await?;
            listing.run(begun).await
        });
        // A panic is caught here already, so that it becomes the error of the mailbox.
        let outcome = run.catch_unwind().await.unwrap_or_else(|panic| {
            Err(ListingError::Job(JobError::Failed { class: "panic", message: panic_message(&*panic) }))
        });
        match outcome {
            Ok(Some(unit)) => Ok(Completion::Commit(unit)),
            Ok(None) => Ok(Completion::Done),
            Err(ListingError::Job(e)) => listing.fail_job(e).await,
            Err(ListingError::Provider(e)) => listing.fail_provider_call(&e).await,
        }
    }

    /// Records that a mailbox could not be opened: its secret is gone, or sealed by a key that is not at hand.
    async fn fail_open(&self, ctx: &JobContext, mailbox: MailboxId, e: anyhow::Error) -> Result<Completion, JobError> {
        let key = (ctx.tenant(), mailbox);
        let Some(poll_state) = self.engine.store.system().list_poll_states(&[key]).await?.remove(&key) else {
            return Err(e.into());
        };
        let Some(row) = self.engine.store.tenant(ctx.tenant()).find_mailbox(&mailbox.to_string()).await? else {
            return Err(e.into());
        };
        let reason = format!("{e:#}");
        let mut unit = ctx.write();
        unit.record_failed_poll(mailbox, poll_state.token, &reason);
        let change = states::mark_failing(&mut unit, (&row).into(), poll_state.state.error_count, &reason);
        self.end_attempt(ctx, unit, mailbox, change, e.into()).await
    }

    /// Records a failed attempt. The job of a mailbox that already has a dead letter ends with that: one is enough, and
    /// from then on the mailbox is only polled to see whether it works again.
    async fn end_attempt(
        &self,
        ctx: &JobContext,
        mut unit: TenantUnit,
        mailbox: MailboxId,
        change: Option<StateChange>,
        e: JobError,
    ) -> Result<Completion, JobError> {
        if matches!(e, JobError::Failed { .. }) {
            if self.engine.store.tenant(ctx.tenant()).has_sync_dead_letter(mailbox).await? {
                states::log(change);
                return Ok(Completion::Commit(unit));
            }
            unit.guard_job(&ctx.job);
            if ctx.job.kind == SyncMailbox::KIND && ctx.job.attempt >= SYNC_RETRY.max_retries.into() {
                // The last attempt. An older dead letter, from before the mailbox worked again, is of no use any more.
                unit.discard_sync_dead_letters(mailbox);
            }
        }
        unit.commit().await?;
        states::log(change);
        Err(e)
    }
}

/// A listing as one job continues it, under the lease of the mailbox.
struct MailboxListing<'a> {
    sync: &'a Syncer,
    ctx: &'a JobContext,
    store: TenantStore,
    session: MailboxSession,
    lease: SyncLease,
    phase: ListingPhase,
}

/// Folders that came into scope or left it.
#[derive(Default)]
struct ScopeChanges {
    is_wider: bool,
    left: Vec<String>,
}

/// What a sync found, for its log line.
#[derive(Default)]
struct SyncCounts {
    /// Messages that were new or changed.
    listed: u64,
    /// Those of them that are to be fetched.
    to_fetch: u64,
    /// Placements that are gone.
    removed: u64,
}

/// Why a listing ended early.
enum ListingError {
    Provider(ConnectorError),
    Job(JobError),
}

impl From<ConnectorError> for ListingError {
    fn from(e: ConnectorError) -> Self {
        Self::Provider(e)
    }
}

impl From<store::StoreError> for ListingError {
    fn from(e: store::StoreError) -> Self {
        Self::Job(e.into())
    }
}

impl From<anyhow::Error> for ListingError {
    fn from(e: anyhow::Error) -> Self {
        Self::Job(e.into())
    }
}

impl MailboxListing<'_> {
    fn mailbox(&self) -> MailboxId {
        self.session.mailbox.id
    }

    fn key(&self) -> MailboxKey {
        (self.ctx.tenant(), self.mailbox())
    }

    /// Checks that the session is still that of the mailbox: with other credentials it may open another account, whose
    /// mail must not be stored.
    async fn check(&self, begun: &SyncClaim) -> Result<(), ListingError> {
        let MailboxSession { mailbox, account, connector, .. } = &self.session;
        if !begun.cursors.contains_key(ListingPhase::Changes.as_str()) {
            // A first sync, perhaps because the mailbox got another account after we opened it and before we had the
            // lease.
            let now = self.sync.open(self.ctx.tenant(), mailbox.id).await?;
            if now.is_none_or(|now| now.account.settings != account.settings) {
                return Err(ListingError::Job(JobError::Deferred(LEASE_RETRY_DELAY)));
            }
        }
        if mailbox.state == MailboxState::Connecting && connector.obtain_token(account).is_some() {
            self.sync.gateway.make(&self.session.target, connector.check(account)).await?;
        }
        Ok(())
    }

    /// Lists pages until the end. Returns the unit that completes the job, which includes the last page, or `None` if
    /// nothing has changed, which is recorded already.
    async fn run(&self, begun: SyncClaim) -> Result<Option<TenantUnit>, ListingError> {
        let started = std::time::Instant::now();
        let SyncClaim { mut state, cursors: mut stored_cursors, .. } = begun;
        let (mut has_news, mut counts) = (false, SyncCounts::default());
        let mut returned = HashSet::new();
        let mut cursors = stored_cursors.remove(self.phase.as_str()).unwrap_or_default();
        let change_cursors = stored_cursors.remove(ListingPhase::Changes.as_str());
        if self.phase != ListingPhase::Changes && change_cursors.is_none() {
            // Without change cursors, changes during the listing would be missed. The next sync enqueues the listing
            // again.
            return Ok(Some(self.end(SyncEnd::Interrupted)));
        }
        let change_cursors = change_cursors.unwrap_or_default();
        loop {
            if (self.phase == ListingPhase::History && state.is_history_done)
                || (self.phase == ListingPhase::FullComparison && !state.is_listing)
            {
                return Ok(Some(self.end(SyncEnd::Interrupted)));
            }
            let mut page = match self.fetch_page(&cursors, &change_cursors, &state).await {
                Err(ConnectorError::CursorExpired) if !cursors.is_empty() => {
                    self.reset_expired_cursors().await?;
                    cursors = Cursors::new();
                    state = self.state().await?;
                    continue;
                }
                page => page?,
            };
            if self.lease.is_lost() {
                return Err(ListingError::Job(JobError::Deferred(LEASE_RETRY_DELAY)));
            }
            if self.phase == ListingPhase::Changes {
                add_scope_changes(&mut page, &self.session);
            }
            if !has_news && self.phase == ListingPhase::Changes && is_unchanged(&page, &cursors, &state, &self.session)
            {
                metrics::histogram!(catalogue::SYNC_DURATION_SECONDS).record(started.elapsed().as_secs_f64());
                self.sync.statement_batchers.end_unchanged(self.key(), self.lease.token).await?;
                return Ok(None);
            }
            has_news |= !page.is_empty();
            let is_end = page.is_last;
            page.move_cursors(&mut cursors);
            let mut unit = self.record(page, &state, &mut returned, &mut counts).await?;
            self.ctx.report_progress();
            if is_end || self.phase != ListingPhase::Changes {
                metrics::histogram!(catalogue::SYNC_DURATION_SECONDS).record(started.elapsed().as_secs_f64());
                self.finish(&mut unit, &state, has_news).await?;
                if is_end && (has_news || self.phase != ListingPhase::Changes) {
                    self.log_synced(&counts, started.elapsed());
                }
                return Ok(Some(unit));
            }
            unit.commit_at(Effect::RecordPage).await?;
            state = self.state().await?;
        }
    }

    /// Logs a listing that is complete. Called only for syncs that found something, not for idle polls. The other phases
    /// take a job per page, so what this job counted is only the last page, and is not logged.
    fn log_synced(&self, counts: &SyncCounts, duration: Duration) {
        let (provider, phase) = (self.session.mailbox.provider.as_str(), self.phase.as_str());
        if self.phase != ListingPhase::Changes {
            tracing::info!(
                tenant.id = %self.ctx.tenant(),
                mailbox.id = %self.mailbox(),
                provider,
                phase,
                "mailbox listing completed"
            );
            return;
        }
        let SyncCounts { listed, to_fetch, removed } = *counts;
        tracing::info!(
            tenant.id = %self.ctx.tenant(),
            mailbox.id = %self.mailbox(),
            provider,
            phase,
            listed,
            to_fetch,
            removed,
            duration_ms = duration.as_millis() as u64,
            "mailbox synced"
        );
    }

    async fn state(&self) -> Result<SyncState, ListingError> {
        let state = self.store.find_sync_state(self.mailbox()).await?;
        Ok(state.ok_or_else(|| anyhow::anyhow!("the mailbox is not synced any more"))?)
    }

    async fn fetch_page(
        &self,
        cursors: &Cursors,
        change_cursors: &Cursors,
        state: &SyncState,
    ) -> Result<ListingPage, ConnectorError> {
        let MailboxSession { target, account, connector, .. } = &self.session;
        let call = match self.phase {
            ListingPhase::Changes => connector.changes(account, cursors),
            ListingPhase::History => connector.history(account, cursors, change_cursors, state.since),
            ListingPhase::FullComparison => connector.list(account, cursors, Some(change_cursors), state.since),
        };
        match self.phase {
            ListingPhase::Changes => self.sync.gateway.make(target, call).await,
            // It is of no use to list more than may be fetched.
            ListingPhase::History | ListingPhase::FullComparison => {
                self.sync.gateway.make_fetch(target, self.ctx.job.lane, call).await
            }
        }
    }

    /// Resets the expired cursors of this phase. If those of the changes expired, a full listing follows once there are
    /// new ones.
    async fn reset_expired_cursors(&self) -> Result<(), ListingError> {
        let mut unit = self.store.write();
        unit.guard_sync(self.mailbox(), self.lease.token);
        unit.start_listing_phase(self.mailbox(), self.phase);
        unit.commit_at(Effect::RecordPage).await?;
        Ok(())
    }

    async fn record(
        &self,
        mut page: ListingPage,
        state: &SyncState,
        returned: &mut HashSet<String>,
        counts: &mut SyncCounts,
    ) -> Result<TenantUnit, ListingError> {
        let missing = self.missing_folders(&page).await?;
        let folders = std::mem::take(&mut page.folders);
        let folders: Vec<_> =
            folders.into_iter().map(|folder| (folder.clone(), self.session.scope.includes(&folder))).collect();
        let recorded = self.recorded_scopes(&page, &folders).await?;
        if self.phase == ListingPhase::Changes {
            returned.extend(returning(&folders, &recorded));
            let (back, seen) = page.seen.into_iter().partition(|seen| returned.contains(&seen.placement.folder));
            page.seen = seen;
            page.relisted.extend::<Vec<SeenMessage>>(back);
        }
        self.add_flag_changes(&mut page).await?;
        self.add_repeated(&mut page, state.since).await?;
        self.add_unlisted(&mut page).await?;
        let scopes = retain_in_scope(&mut page, &folders, recorded)?;
        if scopes.is_wider && self.phase == ListingPhase::FullComparison {
            // The comparison starts over, under another number: of this page only the folders count.
            page = ListingPage::default();
        }
        let ids = page.seen.iter().map(|seen| seen.message.clone()).collect();
        let known = self.store.find_ledger_entries(self.mailbox(), ids).await?;
        if self.phase == ListingPhase::FullComparison {
            // Older mail than the backfill allows is left out, unless we have it.
            page.seen.retain(|seen| {
                let is_recent = seen.received_at.is_none() || seen.received_at >= state.since;
                is_recent || known.contains_key(&seen.message)
            });
        }
        let wanted = wanted(&page.seen, &known);
        let mut unit = self.store.write();
        unit.guard_page(self.mailbox(), self.lease.token, self.last_new_message(&wanted, &known));
        if scopes.is_wider {
            // A full listing finds the messages that are in them already.
            unit.start_listing_phase(self.mailbox(), ListingPhase::FullComparison);
            self.enqueue_unique(&mut unit, &ListMailbox { mailbox: self.mailbox() })?;
        }
        let is_end = page.is_last;
        if !is_end {
            // Before the messages of this page, so that the next page is listed while they are fetched.
            self.enqueue_next_page(&mut unit)?;
        }
        self.fetch(&mut unit, &wanted)?;
        let is_comparison_done = self.phase == ListingPhase::FullComparison && is_end;
        let binds_by_content = self.sync.binds_by_content(&self.session);
        let may_be_elsewhere = binds_by_content && !page.removed_placements.is_empty();
        if is_comparison_done || may_be_elsewhere || !missing.is_empty() || !page.folder_snapshots.is_empty() {
            self.enqueue_unique(&mut unit, &RemoveMissing { mailbox: self.mailbox() })?;
        }
        let found = wanted.len() as u64;
        counts.listed += page.seen.len() as u64;
        counts.to_fetch += found;
        counts.removed += page.removed_placements.len() as u64;
        unit.record_page(
            self.mailbox(),
            PageRows {
                phase: self.phase,
                folders,
                missing_folders: missing.unconfirmed,
                confirmed_missing_folders: missing.confirmed,
                messages: page.seen,
                outdated_placements: page
                    .complete_placements
                    .iter()
                    .cloned()
                    .chain(page.id_only.into_iter().map(|seen| seen.message))
                    .collect(),
                fully_placed: page.complete_placements,
                unchanged: page.unchanged,
                removed_placements: page.removed_placements,
                binds_by_content,
                snapshots: page.folder_snapshots,
                cursors: page.cursors,
                listing: state.is_listing.then_some(state.listing),
                is_comparison_done,
                is_history_done: self.phase == ListingPhase::History && is_end,
                new_messages: found,
                is_backfill: match self.phase {
                    ListingPhase::Changes => false,
                    ListingPhase::History => true,
                    // What arrived while the cursors were expired is new.
                    ListingPhase::FullComparison => !state.is_history_done,
                },
                excluded_folders: scopes.left,
            },
        );
        Ok(unit)
    }

    /// Returns the last message of a page that is new to us. Only changes come in the order of time.
    fn last_new_message<'a>(
        &self,
        wanted: &[&'a SeenMessage],
        known: &HashMap<String, LedgerEntry>,
    ) -> Option<&'a str> {
        let new = wanted.iter().filter(|seen| !known.contains_key(&seen.message));
        let last = new.max_by_key(|seen| seen.received_at).filter(|_| self.phase == ListingPhase::Changes);
        last.map(|seen| seen.message.as_str())
    }

    /// Enqueues the listing of the next page. Changes need no job for it: they are listed to their end by one.
    fn enqueue_next_page(&self, unit: &mut TenantUnit) -> Result<(), ListingError> {
        match self.phase {
            ListingPhase::Changes => {}
            ListingPhase::History => self.enqueue_unique(unit, &ListHistory { mailbox: self.mailbox() })?,
            ListingPhase::FullComparison => self.enqueue_unique(unit, &ListMailbox { mailbox: self.mailbox() })?,
        }
        Ok(())
    }

    /// Adds messages of which only the flags changed, if we have them.
    async fn add_flag_changes(&self, page: &mut ListingPage) -> Result<(), ListingError> {
        let mut changed = std::mem::take(&mut page.flags_only);
        if !changed.is_empty() {
            let ids = changed.iter().map(|seen| seen.message.clone()).collect();
            let known = self.store.find_ledger_entries(self.mailbox(), ids).await?;
            changed.retain(|seen| known.get(&seen.message).is_some_and(|known| known.state != LedgerState::Gone));
            page.seen.extend(changed);
        }
        Ok(())
    }

    /// Adds messages that a provider lists once more. Those older than `since` are left out unless we have them, under
    /// whatever id.
    async fn add_repeated(&self, page: &mut ListingPage, since: Option<Timestamp>) -> Result<(), ListingError> {
        let (older, wanted): (Vec<_>, Vec<_>) = std::mem::take(&mut page.relisted)
            .into_iter()
            .partition(|seen| seen.received_at.is_some() && seen.received_at < since);
        page.seen.extend(wanted);
        if !older.is_empty() && !self.session.mailbox.provider.capabilities().identifies_messages_by_content {
            // Ids of this provider never change, so they tell whether we have a message.
            let ids = older.iter().map(|seen| seen.message.clone()).collect();
            let known = self.store.find_ledger_entries(self.mailbox(), ids).await?;
            page.seen.extend(older.into_iter().filter(|seen| known.contains_key(&seen.message)));
        } else if let (Some(since), false) = (since, older.is_empty()) {
            let have = self.store.list_arrivals_before(self.mailbox(), since).await?;
            page.seen.extend(
                older
                    .into_iter()
                    .filter(|seen| seen.received_at.is_some_and(|received_at| have.contains(&received_at))),
            );
        }
        Ok(())
    }

    /// Adds messages of which only the id is known, if they are to be fetched.
    async fn add_unlisted(&self, page: &mut ListingPage) -> Result<(), ListingError> {
        let id_only = std::mem::take(&mut page.id_only);
        if !id_only.is_empty() {
            let ids = id_only.iter().map(|seen| seen.message.clone()).collect();
            let known = self.store.find_ledger_entries(self.mailbox(), ids).await?;
            let mut new: Vec<SeenMessage> = wanted(&id_only, &known).into_iter().cloned().collect();
            // One that waits to be fetched has a placement already, or a listing is about to record a better one.
            new.retain(|seen| {
                !known.get(&seen.message).is_some_and(|known| {
                    matches!(known.state, LedgerState::Queued | LedgerState::Processing | LedgerState::Failed)
                })
            });
            page.id_only = new.clone();
            page.seen.extend(new);
        }
        Ok(())
    }

    /// Returns the recorded folders, with whether their mail is synced; none if the page needs none.
    async fn recorded_scopes(
        &self,
        page: &ListingPage,
        folders: &[(ListedFolder, bool)],
    ) -> Result<HashMap<String, bool>, ListingError> {
        let lists_messages = !page.seen.is_empty()
            || !page.relisted.is_empty()
            || !page.flags_only.is_empty()
            || !page.id_only.is_empty();
        if !lists_messages && folders.is_empty() {
            return Ok(HashMap::new());
        }
        Ok(self.store.list_folder_scopes(self.mailbox()).await?)
    }

    async fn missing_folders(&self, page: &ListingPage) -> Result<MissingFolders, ListingError> {
        if page.missing_folders.is_empty() {
            return Ok(MissingFolders::default());
        }
        let now = self.sync.engine.store.system().now().await?;
        Ok(MissingFolders::of(page, &self.session.account, now, self.sync.settings.second_look)?)
    }

    fn fetch(&self, unit: &mut TenantUnit, wanted: &[&SeenMessage]) -> Result<(), ListingError> {
        let lane = if self.phase == ListingPhase::Changes { Lane::Normal } else { Lane::Low };
        let mut jobs = Vec::new();
        for batch in FetchEmails::batches(self.mailbox(), wanted) {
            jobs.push(NewJob { lane, ..self.ctx.follow_up(&batch).map_err(anyhow::Error::from)? });
        }
        unit.enqueue(jobs);
        Ok(())
    }

    fn enqueue_unique<J: Job>(&self, unit: &mut TenantUnit, job: &J) -> Result<(), ListingError> {
        let job = self.ctx.follow_up(job).map_err(anyhow::Error::from)?;
        unit.enqueue(vec![unique_per_mailbox(job, self.mailbox())]);
        Ok(())
    }

    async fn finish(&self, unit: &mut TenantUnit, state: &SyncState, has_news: bool) -> Result<(), ListingError> {
        let end = if self.phase == ListingPhase::Changes { SyncEnd::Done } else { SyncEnd::Interrupted };
        unit.end_sync(self.mailbox(), self.lease.token, end);
        let mailbox = &self.session.mailbox;
        states::log(states::mark_working(unit, mailbox));
        if mailbox.state == MailboxState::Connecting && mailbox.provider.capabilities().has_named_subscription {
            // Only now is it known whose mailbox it is.
            request_watch_again(unit, &self.sync.engine, mailbox.id)?;
        }
        if let Some(pause) = &state.paused
            && !self.sync.gateway.owes_bytes(&self.session.target).await
        {
            unit.end_pause(self.mailbox(), pause);
        }
        if self.phase != ListingPhase::Changes {
            return Ok(());
        }
        if has_news {
            unit.record_news(self.mailbox());
            unit.emit_event(EventType::SyncCompleted, Some(self.mailbox()), json!({}));
            if self.session.mailbox.provider.capabilities().supports_push {
                unit.count_missed_pushes(self.mailbox());
            }
        }
        if !state.is_history_done {
            self.enqueue_unique(unit, &ListHistory { mailbox: self.mailbox() })?;
        }
        let is_look_due = state.is_look_due() && !state.is_listing;
        if is_look_due {
            unit.start_listing_phase(self.mailbox(), ListingPhase::FullComparison);
        }
        if state.is_listing || is_look_due {
            self.enqueue_unique(unit, &ListMailbox { mailbox: self.mailbox() })?;
        }
        Ok(())
    }

    /// Records an error of our own as that of the mailbox; the next attempt may succeed.
    async fn fail_job(&self, e: JobError) -> Result<Completion, JobError> {
        let e = match e {
            // Of the mailbox only if storage is not to blame.
            JobError::Storage { fault: StorageFault::Possible, message } => {
                self.sync.engine.judge_storage_error(message).await
            }
            e => e,
        };
        let JobError::Failed { message, .. } = &e else {
            self.release_lease().await;
            return Err(e);
        };
        let errors = self.store.find_sync_state(self.mailbox()).await?.map_or(0, |state| state.error_count);
        let mut unit = self.store.write();
        unit.guard_sync(self.mailbox(), self.lease.token);
        unit.end_sync(self.mailbox(), self.lease.token, SyncEnd::Failed(message));
        let change = states::mark_failing(&mut unit, (&*self.session.mailbox).into(), errors, message);
        self.sync.end_attempt(self.ctx, unit, self.mailbox(), change, e).await
    }

    /// Releases the lease, so that others need not wait until it expires.
    async fn release_lease(&self) {
        if let Err(e) = self.end(SyncEnd::Interrupted).commit().await {
            tracing::debug!(tenant.id = %self.ctx.tenant(), mailbox.id = %self.mailbox(), error = redact_for_log(&e), "sync lease not released; it expires by itself");
        }
    }

    fn end(&self, end: SyncEnd<'_>) -> TenantUnit {
        let mut unit = self.store.write();
        unit.end_sync(self.mailbox(), self.lease.token, end);
        unit
    }

    /// Records an error of the provider; the job ends, or is tried again.
    async fn fail_provider_call(&self, e: &ConnectorError) -> Result<Completion, JobError> {
        let reason = e.to_string();
        let errors = self.store.find_sync_state(self.mailbox()).await?.map_or(0, |state| state.error_count);
        let mut unit = self.store.write();
        unit.guard_sync(self.mailbox(), self.lease.token);
        let end = match e {
            ConnectorError::Throttled { .. } | ConnectorError::RateLimited(_) => SyncEnd::Interrupted,
            ConnectorError::FolderUnavailable(_) => SyncEnd::Deferred(&reason),
            _ => SyncEnd::Failed(&reason),
        };
        unit.end_sync(self.mailbox(), self.lease.token, end);
        let mailbox = &*self.session.mailbox;
        let mut change = None;
        match e {
            ConnectorError::Throttled { .. } | ConnectorError::RateLimited(_) => {
                self.sync.record_pause(&mut unit, mailbox, e);
            }
            ConnectorError::Unauthorized(_) => {
                states::log(states::mark_needs_reauth(&mut unit, mailbox, &reason));
                return Ok(Completion::Commit(unit));
            }
            // Not the fault of the mailbox: it continues by itself once an operator has fixed it.
            ConnectorError::AppRejected(_) => {}
            ConnectorError::FolderUnavailable(_) => {
                tracing::warn!(
                    tenant.id = %self.ctx.tenant(),
                    mailbox.id = %self.mailbox(),
                    provider = mailbox.provider.as_str(),
                    error = redact_for_log(e),
                    "folder unavailable"
                );
            }
            _ => change = states::mark_failing(&mut unit, mailbox.into(), errors, &reason),
        }
        self.sync.end_attempt(self.ctx, unit, self.mailbox(), change, job_error(e, self.ctx)).await
    }
}

/// Returns the folders that were out of scope or missing, and are not any more. What changes list of them was there before.
fn returning(folders: &[(ListedFolder, bool)], recorded: &HashMap<String, bool>) -> Vec<String> {
    let returning = folders.iter().filter(|(folder, is_in)| *is_in && recorded.get(&folder.id) == Some(&false));
    returning.map(|(folder, _)| folder.id.clone()).collect()
}

/// Drops messages in folders that are out of scope, and returns how the scope has changed.
fn retain_in_scope(
    page: &mut ListingPage,
    folders: &[(ListedFolder, bool)],
    mut is_in_scope: HashMap<String, bool>,
) -> Result<ScopeChanges, ListingError> {
    let mut scopes = ScopeChanges::default();
    for (folder, is_in) in folders {
        match is_in_scope.insert(folder.id.clone(), *is_in) {
            Some(false) if *is_in => scopes.is_wider = true,
            Some(true) if !*is_in => scopes.left.push(folder.id.clone()),
            _ => {}
        }
    }
    let unknown = page.seen.iter().find(|seen| !is_in_scope.contains_key(&seen.placement.folder));
    if unknown.is_some() {
        return Err(ConnectorError::Protocol("a message is in a folder that was never listed".to_owned()).into());
    }
    page.seen.retain(|seen| is_in_scope[&seen.placement.folder]);
    // A placement that is listed both as present and as vanished is present: that was listed last.
    let seen: HashSet<&Placement> = page.seen.iter().map(|seen| &seen.placement).collect();
    page.removed_placements.retain(|place| !seen.contains(place));
    Ok(scopes)
}

/// Returns whether a page of changes is empty and the mailbox needs nothing else, so that only the sync time is written.
pub(super) fn is_unchanged(page: &ListingPage, cursors: &Cursors, state: &SyncState, session: &MailboxSession) -> bool {
    let is_same = page.cursors.iter().all(|(scope, cursor)| cursors.get(scope) == Some(cursor));
    page.is_last
        && page.is_empty()
        && is_same
        && state.is_history_done
        && !state.is_listing
        && !state.is_look_due()
        && state.paused.is_none()
        && session.mailbox.state == MailboxState::Active
}

/// Adds folders whose scope has changed by the settings of the mailbox.
pub(super) fn add_scope_changes(page: &mut ListingPage, session: &MailboxSession) {
    for known in &session.account.folders {
        let folder = known.to_listed();
        let is_listed =
            page.folders.iter().any(|listed| listed.id == known.id) || page.missing_folders.contains(&known.id);
        if !is_listed && session.scope.includes(&folder) != known.is_in_scope {
            page.folders.push(folder);
        }
    }
}

/// Returns the messages that are to be fetched: those that we do not have, or only in another revision.
fn wanted<'a>(messages: &'a [SeenMessage], known: &HashMap<String, LedgerEntry>) -> Vec<&'a SeenMessage> {
    let mut met = HashSet::new();
    let needed = messages.iter().filter(|seen| needs_fetching(seen, known.get(&seen.message)));
    needed.filter(|seen| met.insert(&seen.message)).collect()
}

fn needs_fetching(seen: &SeenMessage, known: Option<&LedgerEntry>) -> bool {
    let Some(known) = known else { return true };
    match known.state {
        LedgerState::Gone if known.is_purged => false,
        LedgerState::Processed => seen.revision.is_some() && known.revision != seen.revision,
        LedgerState::Gone => known.email.is_none() || known.is_gone_unfinished,
        // A fetch that is running may find it gone at this moment, and would not be repeated.
        LedgerState::Queued | LedgerState::Processing | LedgerState::Failed | LedgerState::Skipped => true,
    }
}
