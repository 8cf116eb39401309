//! The three listings of a mailbox, as jobs: what happens now, what was there before, and everything for a comparison.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use domain::connector::{Cursors, Page, Place, Seen};
use domain::{ConnectorError, Lane, LedgerState, MailboxId, MailboxState};
use futures_util::FutureExt;
use jiff::Timestamp;
use jobs::{Held, Job, JobError, Kind, Pool, Retry, Verdict, panic_message};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::failpoint::{self, Effect};
use store::sql::jobs::{NewJob, OnConflict, Unique};
use store::sql::ledger::Known;
use store::sql::sync::{Begun, PageRows, Phase, SyncEnd, SyncState};
use store::{TenantStore, TenantUnit};

use super::fetch::FetchEmails;
use super::hold::Hold;
use super::{Opened, Syncer, job_error, nothing_to_do, states};
use crate::push::watch_at_last;

/// Looks at what has changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SyncMailbox {
    pub mailbox: MailboxId,
}

/// The next page of what was there before the first sync, newest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListHistory {
    pub mailbox: MailboxId,
}

/// The next page of everything, because the provider has forgotten where we were.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListMailbox {
    pub mailbox: MailboxId,
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

/// A provider that is away for hours must not end a listing: what it holds is still to be had.
pub(super) const PATIENT: Retry =
    Retry { retries: 500, first: Duration::from_secs(1), longest: Duration::from_secs(300) };

/// A mailbox that cannot be understood is given up after about twenty minutes: what became of it stands among the dead
/// letters, and it is looked at anew, seldom. Providers that are away spend no attempt.
pub(super) const STUBBORN: Retry =
    Retry { retries: 12, first: Duration::from_secs(1), longest: Duration::from_secs(300) };

/// Somebody else lists the mailbox, which takes seconds.
const ANOTHER_LISTS_IT: Duration = Duration::from_millis(500);

/// One live job of its kind per mailbox; asked for while it runs, it runs once more.
pub fn only_one(job: NewJob, mailbox: MailboxId) -> NewJob {
    NewJob { unique: Some(Unique { key: mailbox.to_string(), policy: OnConflict::Merge }), ..job }
}

impl Syncer {
    pub fn list_kinds(&self) -> [Kind; 3] {
        let (changes, history, everything) = (self.clone(), self.clone(), self.clone());
        let patient = |kind: Kind| kind.on(Pool::Remote).retried(PATIENT);
        let look = Kind::new(move |held: Held, job: SyncMailbox| {
            let sync = changes.clone();
            async move { sync.list(&held, job.mailbox, Phase::Changes).await }
        });
        [
            look.on(Pool::Remote).retried(STUBBORN),
            patient(Kind::new(move |held: Held, job: ListHistory| {
                let sync = history.clone();
                async move { sync.list(&held, job.mailbox, Phase::History).await }
            })),
            patient(Kind::new(move |held: Held, job: ListMailbox| {
                let sync = everything.clone();
                async move { sync.list(&held, job.mailbox, Phase::List).await }
            })),
        ]
    }

    async fn list(&self, held: &Held, mailbox: MailboxId, phase: Phase) -> Result<Verdict, JobError> {
        let opened = match self.open(held.tenant(), mailbox).await {
            Ok(Some(opened)) => opened,
            Ok(None) => return nothing_to_do(&self.engine.store.tenant(held.tenant())).await,
            Err(e) => return self.cannot_open(held, mailbox, e).await,
        };
        let store = self.engine.store.tenant(held.tenant());
        let lease = (&*self.settings.holder, self.settings.lease);
        let hold = Hold::take(&self.gate, &self.desk, &store, mailbox, lease).await?;
        let acquired = if hold.is_some() { "true" } else { "false" };
        metrics::counter!("mailroom_sync_attempts_total", "acquired" => acquired).increment(1);
        let Some((hold, begun)) = hold else { return Err(JobError::Throttled(ANOTHER_LISTS_IT)) };
        let listing = Listing { sync: self, held, store, opened, hold, phase };
        let run = AssertUnwindSafe(async {
            listing.check(&begun).await?;
            listing.run(begun).await
        });
        // A panic is caught here already, so that the mailbox can say what is wrong with it.
        let outcome = run.catch_unwind().await.unwrap_or_else(|panic| {
            Err(Trouble::Job(JobError::Failed { class: "panic", message: panic_message(&*panic) }))
        });
        match outcome {
            Ok(Some(unit)) => Ok(Verdict::Commit(unit)),
            Ok(None) => Ok(Verdict::Done),
            Err(Trouble::Job(e)) => listing.stumble(e).await,
            Err(Trouble::Provider(e)) => listing.give_up(&e).await,
        }
    }

    /// What opens it is gone, or sealed by a key that is away.
    async fn cannot_open(&self, held: &Held, mailbox: MailboxId, e: anyhow::Error) -> Result<Verdict, JobError> {
        let key = (held.tenant(), mailbox);
        let Some(standing) = self.engine.store.system().list_standings(&[key]).await?.remove(&key) else {
            return Err(e.into());
        };
        let reason = format!("{e:#}");
        let mut unit = held.write();
        unit.fail_look(mailbox, standing.token, &reason);
        states::fails(&mut unit, mailbox, standing.state.error_count, &reason);
        self.end_try(held, unit, mailbox, e.into()).await
    }

    /// A try that failed, which is recorded. For a mailbox that was given up the job ends with that: one dead letter is
    /// enough, and from then on it is only looked whether it is over.
    async fn end_try(
        &self,
        held: &Held,
        mut unit: TenantUnit,
        mailbox: MailboxId,
        e: JobError,
    ) -> Result<Verdict, JobError> {
        if matches!(e, JobError::Failed { .. }) {
            if self.engine.store.tenant(held.tenant()).is_given_up(mailbox).await? {
                return Ok(Verdict::Commit(unit));
            }
            unit.guard_job(&held.job);
            if held.job.kind == SyncMailbox::KIND && held.job.attempt >= STUBBORN.retries.into() {
                // That was the last one. A letter from before the mailbox worked again has nothing more to say.
                unit.discard_letters(mailbox);
            }
        }
        unit.commit().await?;
        Err(e)
    }
}

/// One job's part of a listing.
struct Listing<'a> {
    sync: &'a Syncer,
    held: &'a Held,
    store: TenantStore,
    opened: Opened,
    hold: Hold,
    phase: Phase,
}

/// How folders came into scope, or left it.
#[derive(Default)]
struct Scopes {
    is_wider: bool,
    left: Vec<String>,
}

enum Trouble {
    Provider(ConnectorError),
    Job(JobError),
}

impl From<ConnectorError> for Trouble {
    fn from(e: ConnectorError) -> Self {
        Self::Provider(e)
    }
}

impl From<store::StoreError> for Trouble {
    fn from(e: store::StoreError) -> Self {
        Self::Job(e.into())
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(e: anyhow::Error) -> Self {
        Self::Job(e.into())
    }
}

impl Listing<'_> {
    fn mailbox(&self) -> MailboxId {
        self.opened.mailbox.id
    }

    /// With what opens it since a moment ago, another mailbox may open: nothing of that is to be stored.
    async fn check(&self, begun: &Begun) -> Result<(), Trouble> {
        let Opened { mailbox, account, connector, .. } = &self.opened;
        if !begun.cursors.contains_key(Phase::Changes.as_str()) {
            // It begins anew, perhaps because it is of another account between our look at it and the right to list it.
            let now = self.sync.open(self.held.tenant(), mailbox.id).await?;
            if now.is_none_or(|now| now.account.settings != account.settings) {
                return Err(Trouble::Job(JobError::Throttled(ANOTHER_LISTS_IT)));
            }
        }
        if mailbox.state == MailboxState::Connecting && connector.grant(account).is_some() {
            self.sync.calls.make(mailbox, connector.check(account)).await?;
        }
        Ok(())
    }

    /// The unit with which the job ends: the last page is part of it. `None`: nothing was new, and that is recorded.
    async fn run(&self, begun: Begun) -> Result<Option<TenantUnit>, Trouble> {
        let started = std::time::Instant::now();
        let Begun { mut state, cursors: mut standing, .. } = begun;
        let mut has_news = false;
        let mut cursors = standing.remove(self.phase.as_str()).unwrap_or_default();
        let told = standing.remove(Phase::Changes.as_str());
        if self.phase != Phase::Changes && told.is_none() {
            // What changes behind a listing would be told by nobody. The next look at the changes asks for it again.
            return Ok(Some(self.end(SyncEnd::Interrupted)));
        }
        let told = told.unwrap_or_default();
        loop {
            if (self.phase == Phase::History && state.is_history_done)
                || (self.phase == Phase::List && !state.is_listing)
            {
                return Ok(Some(self.end(SyncEnd::Interrupted)));
            }
            let mut page = match self.ask(&cursors, &told, &state).await {
                Err(ConnectorError::CursorExpired) if !cursors.is_empty() => {
                    self.start_over().await?;
                    cursors = Cursors::new();
                    state = self.state().await?;
                    continue;
                }
                page => page?,
            };
            if self.hold.is_lost() {
                return Err(Trouble::Job(JobError::Throttled(ANOTHER_LISTS_IT)));
            }
            if self.phase == Phase::Changes {
                add_rescoped(&mut page, &self.opened);
            }
            if !has_news && self.phase == Phase::Changes && is_quiet(&page, &cursors, &state, &self.opened) {
                metrics::histogram!("mailroom_sync_duration_seconds").record(started.elapsed().as_secs_f64());
                self.sync.desk.end_quietly((self.held.tenant(), self.mailbox()), self.hold.token).await?;
                return Ok(None);
            }
            has_news |= !page.is_empty();
            let is_last = page.is_last || self.phase != Phase::Changes;
            page.move_cursors(&mut cursors);
            let mut unit = self.record(page, &state).await?;
            self.held.progress();
            if is_last {
                metrics::histogram!("mailroom_sync_duration_seconds").record(started.elapsed().as_secs_f64());
                self.finish(&mut unit, &state, has_news).await?;
                return Ok(Some(unit));
            }
            failpoint::before(Effect::RecordPage);
            unit.commit().await?;
            failpoint::after(Effect::RecordPage);
            state = self.state().await?;
        }
    }

    async fn state(&self) -> Result<SyncState, Trouble> {
        let state = self.store.find_sync(self.mailbox()).await?;
        Ok(state.ok_or_else(|| anyhow::anyhow!("the mailbox is not synced any more"))?)
    }

    async fn ask(&self, cursors: &Cursors, told: &Cursors, state: &SyncState) -> Result<Page, ConnectorError> {
        let Opened { mailbox, account, connector, .. } = &self.opened;
        let call = match self.phase {
            Phase::Changes => connector.changes(account, cursors),
            Phase::History => connector.history(account, cursors, told, state.since),
            Phase::List => connector.list(account, cursors, Some(told), state.since),
        };
        match self.phase {
            Phase::Changes => self.sync.calls.make(mailbox, call).await,
            // There is no use in knowing more of what must not be fetched yet.
            Phase::History | Phase::List => self.sync.calls.make_fetch(mailbox, self.held.job.lane, call).await,
        }
    }

    /// The provider does not know any more where we were: a listing begins anew, and if it does not know what changed,
    /// everything is compared once it has told where the changes are now.
    async fn start_over(&self) -> Result<(), Trouble> {
        let mut unit = self.store.write();
        unit.guard_sync(self.mailbox(), self.hold.token);
        unit.start_over(self.mailbox(), self.phase);
        failpoint::before(Effect::RecordPage);
        unit.commit().await?;
        failpoint::after(Effect::RecordPage);
        Ok(())
    }

    async fn record(&self, mut page: Page, state: &SyncState) -> Result<TenantUnit, Trouble> {
        self.add_marked(&mut page).await?;
        self.add_again(&mut page, state.since).await?;
        self.add_named(&mut page).await?;
        let folders = std::mem::take(&mut page.folders);
        let folders: Vec<_> =
            folders.into_iter().map(|folder| (folder.clone(), self.opened.scope.includes(&folder))).collect();
        let scopes = self.leave_out_of_scope(&mut page, &folders).await?;
        if scopes.is_wider && self.phase == Phase::List {
            // The comparison begins anew, under another number: of this page only the folders count.
            page = Page::default();
        }
        let ids = page.messages.iter().map(|seen| seen.message.clone()).collect();
        let known = self.store.known_messages(self.mailbox(), ids).await?;
        if self.phase == Phase::List {
            // What is older was never wanted, unless we have it.
            let is_wanted = |seen: &Seen| seen.received_at.is_none() || seen.received_at >= state.since;
            page.messages.retain(|seen| is_wanted(seen) || known.contains_key(&seen.message));
        }
        let mut unit = self.store.write();
        unit.guard_sync(self.mailbox(), self.hold.token);
        if scopes.is_wider {
            // What is in them already shows by comparing everything.
            unit.start_over(self.mailbox(), Phase::List);
            self.follow(&mut unit, &ListMailbox { mailbox: self.mailbox() })?;
        }
        let is_end = page.is_last;
        // Before the messages of this page, so that the next one is listed while they are fetched.
        match self.phase {
            Phase::History if !is_end => self.follow(&mut unit, &ListHistory { mailbox: self.mailbox() })?,
            Phase::List if !is_end => self.follow(&mut unit, &ListMailbox { mailbox: self.mailbox() })?,
            _ => {}
        }
        let wanted = wanted(&page.messages, &known);
        self.fetch(&mut unit, &wanted)?;
        let found = wanted.len() as u64;
        unit.record_page(
            self.mailbox(),
            PageRows {
                phase: self.phase,
                folders,
                gone_folders: page.gone_folders,
                messages: page.messages,
                told: page.whole.iter().cloned().chain(page.named.into_iter().map(|seen| seen.message)).collect(),
                whole: page.whole,
                there: page.there,
                vanished: page.vanished,
                present: page.present,
                cursors: page.cursors,
                listing: state.is_listing.then_some(state.listing),
                is_listed: self.phase == Phase::List && is_end,
                is_history_done: self.phase == Phase::History && is_end,
                found,
                is_backfill: match self.phase {
                    Phase::Changes => false,
                    Phase::History => true,
                    // What came while nobody looked is new.
                    Phase::List => !state.is_history_done,
                },
                left_folders: scopes.left,
            },
        );
        Ok(unit)
    }

    /// Other flags of what we have are told like anything else of it.
    async fn add_marked(&self, page: &mut Page) -> Result<(), Trouble> {
        let mut marked = std::mem::take(&mut page.marked);
        if !marked.is_empty() {
            let ids = marked.iter().map(|seen| seen.message.clone()).collect();
            let known = self.store.known_messages(self.mailbox(), ids).await?;
            marked.retain(|seen| known.get(&seen.message).is_some_and(|known| known.state != LedgerState::Gone));
            page.messages.extend(marked);
        }
        Ok(())
    }

    /// Of what is told once more, what is older than was ever wanted is left out, unless we have it, under whatever name.
    async fn add_again(&self, page: &mut Page, since: Option<Timestamp>) -> Result<(), Trouble> {
        let is_older = |seen: &Seen| seen.received_at.is_some() && seen.received_at < since;
        let (older, wanted): (Vec<_>, Vec<_>) = std::mem::take(&mut page.again).into_iter().partition(is_older);
        page.messages.extend(wanted);
        if !older.is_empty() && !self.opened.mailbox.provider.binds_by_content() {
            // Its ids hold for ever, so they say whether we have it.
            let ids = older.iter().map(|seen| seen.message.clone()).collect();
            let known = self.store.known_messages(self.mailbox(), ids).await?;
            page.messages.extend(older.into_iter().filter(|seen| known.contains_key(&seen.message)));
        } else if let (Some(since), false) = (since, older.is_empty()) {
            let have = self.store.list_arrivals_before(self.mailbox(), since).await?;
            let is_ours = |seen: &Seen| seen.received_at.is_some_and(|received_at| have.contains(&received_at));
            page.messages.extend(older.into_iter().filter(is_ours));
        }
        Ok(())
    }

    /// Of messages that are only named, those that are to be fetched.
    async fn add_named(&self, page: &mut Page) -> Result<(), Trouble> {
        let named = std::mem::take(&mut page.named);
        if !named.is_empty() {
            let ids = named.iter().map(|seen| seen.message.clone()).collect();
            let known = self.store.known_messages(self.mailbox(), ids).await?;
            // Who is to be fetched already has a place, or somebody is about to tell a better one.
            let is_here = |seen: &&Seen| {
                known.get(&seen.message).is_some_and(|known| {
                    matches!(known.state, LedgerState::Queued | LedgerState::Processing | LedgerState::Failed)
                })
            };
            let new: Vec<Seen> = wanted(&named, &known).into_iter().filter(|seen| !is_here(seen)).cloned().collect();
            page.named = new.clone();
            page.messages.extend(new);
        }
        Ok(())
    }

    /// Messages in folders that nobody asked for are not looked at. How the scope of folders has changed.
    async fn leave_out_of_scope(
        &self,
        page: &mut Page,
        folders: &[(domain::connector::SeenFolder, bool)],
    ) -> Result<Scopes, Trouble> {
        if page.messages.is_empty() && folders.is_empty() {
            return Ok(Scopes::default());
        }
        let mut is_in_scope = self.store.list_folder_scopes(self.mailbox()).await?;
        let mut scopes = Scopes::default();
        for (folder, is_in) in folders {
            match is_in_scope.insert(folder.id.clone(), *is_in) {
                Some(false) if *is_in => scopes.is_wider = true,
                Some(true) if !*is_in => scopes.left.push(folder.id.clone()),
                _ => {}
            }
        }
        let unknown = page.messages.iter().find(|seen| !is_in_scope.contains_key(&seen.place.folder));
        if unknown.is_some() {
            return Err(ConnectorError::Protocol("a message is in a folder that was never told of".to_owned()).into());
        }
        page.messages.retain(|seen| is_in_scope[&seen.place.folder]);
        // A place that is told of both ways is as it was told last, and that is what is there now.
        let seen: HashSet<&Place> = page.messages.iter().map(|seen| &seen.place).collect();
        page.vanished.retain(|place| !seen.contains(place));
        Ok(scopes)
    }

    fn fetch(&self, unit: &mut TenantUnit, wanted: &[&Seen]) -> Result<(), Trouble> {
        let lane = if self.phase == Phase::Changes { Lane::Normal } else { Lane::Low };
        let mut jobs = Vec::new();
        for batch in FetchEmails::batches(self.mailbox(), wanted) {
            jobs.push(NewJob { lane, ..self.held.follow_up(&batch).map_err(anyhow::Error::from)? });
        }
        unit.enqueue(jobs);
        Ok(())
    }

    fn follow<J: Job>(&self, unit: &mut TenantUnit, job: &J) -> Result<(), Trouble> {
        let job = self.held.follow_up(job).map_err(anyhow::Error::from)?;
        unit.enqueue(vec![only_one(job, self.mailbox())]);
        Ok(())
    }

    async fn finish(&self, unit: &mut TenantUnit, state: &SyncState, has_news: bool) -> Result<(), Trouble> {
        let end = if self.phase == Phase::Changes { SyncEnd::Done } else { SyncEnd::Interrupted };
        unit.end_sync(self.mailbox(), self.hold.token, end);
        states::works(unit, self.mailbox());
        let mailbox = &self.opened.mailbox;
        if mailbox.state == MailboxState::Connecting && mailbox.provider.subscribes() {
            // From now on it is known whose mailbox it is.
            watch_at_last(unit, &self.sync.engine, mailbox.id)?;
        }
        if let Some(pause) = &state.paused
            && !self.sync.calls.owes_bytes(&self.opened.mailbox).await
        {
            unit.end_pause(self.mailbox(), pause);
        }
        if self.phase != Phase::Changes {
            return Ok(());
        }
        if has_news {
            unit.had_news(self.mailbox());
            unit.say("sync.completed", Some(self.mailbox()), json!({}));
            if self.opened.mailbox.provider.pushes() {
                unit.found_news(self.mailbox());
            }
        }
        if !state.is_history_done {
            self.follow(unit, &ListHistory { mailbox: self.mailbox() })?;
        }
        if state.is_listing {
            self.follow(unit, &ListMailbox { mailbox: self.mailbox() })?;
        }
        Ok(())
    }

    /// Something is wrong here, and not with the provider. The mailbox says so, as the next try may find it well.
    async fn stumble(&self, e: JobError) -> Result<Verdict, JobError> {
        let JobError::Failed { message, .. } = &e else {
            self.let_go().await;
            return Err(e);
        };
        let errors = self.store.find_sync(self.mailbox()).await?.map_or(0, |state| state.error_count);
        let mut unit = self.store.write();
        unit.guard_sync(self.mailbox(), self.hold.token);
        unit.end_sync(self.mailbox(), self.hold.token, SyncEnd::Failed(message));
        states::fails(&mut unit, self.mailbox(), errors, message);
        self.sync.end_try(self.held, unit, self.mailbox(), e).await
    }

    /// Others need not wait until the right to list it runs out.
    async fn let_go(&self) {
        if let Err(e) = self.end(SyncEnd::Interrupted).commit().await {
            tracing::debug!("the right to list a mailbox runs out by itself: {e}");
        }
    }

    fn end(&self, end: SyncEnd<'_>) -> TenantUnit {
        let mut unit = self.store.write();
        unit.end_sync(self.mailbox(), self.hold.token, end);
        unit
    }

    /// What the provider said is remembered; the job ends, or is tried again.
    async fn give_up(&self, e: &ConnectorError) -> Result<Verdict, JobError> {
        let reason = e.to_string();
        let errors = self.store.find_sync(self.mailbox()).await?.map_or(0, |state| state.error_count);
        let mut unit = self.store.write();
        unit.guard_sync(self.mailbox(), self.hold.token);
        let end = match e {
            ConnectorError::Throttled { .. } | ConnectorError::NotYet(_) => SyncEnd::Interrupted,
            ConnectorError::Shut(_) => SyncEnd::Hindered(&reason),
            _ => SyncEnd::Failed(&reason),
        };
        unit.end_sync(self.mailbox(), self.hold.token, end);
        match e {
            ConnectorError::Throttled { .. } | ConnectorError::NotYet(_) => {
                self.sync.tell_pause(&mut unit, &self.opened.mailbox, e);
            }
            ConnectorError::Unauthorized(_) => {
                states::needs_reauth(&mut unit, &self.opened.mailbox, &reason);
                return Ok(Verdict::Commit(unit));
            }
            // Not the mailbox's fault: it goes on by itself once an operator has mended it.
            ConnectorError::Operator(_) => {}
            ConnectorError::Shut(_) => tracing::warn!(mailbox = %self.mailbox(), "a folder cannot be opened"),
            _ => states::fails(&mut unit, self.mailbox(), errors, &reason),
        }
        self.sync.end_try(self.held, unit, self.mailbox(), job_error(e, self.held)).await
    }
}

/// Of changes: nothing is new, nothing is left to do, and the mailbox is as it should be. There is nothing to write but that.
pub(super) fn is_quiet(page: &Page, cursors: &Cursors, state: &SyncState, opened: &Opened) -> bool {
    let is_same = page.cursors.iter().all(|(scope, cursor)| cursors.get(scope) == Some(cursor));
    page.is_last
        && page.is_empty()
        && is_same
        && state.is_history_done
        && !state.is_listing
        && state.paused.is_none()
        && opened.mailbox.state == MailboxState::Active
}

/// Somebody may have changed which folders are wanted.
pub(super) fn add_rescoped(page: &mut Page, opened: &Opened) {
    for known in &opened.account.folders {
        let folder = known.seen();
        let is_told = page.folders.iter().any(|told| told.id == known.id) || page.gone_folders.contains(&known.id);
        if !is_told && opened.scope.includes(&folder) != known.is_in_scope {
            page.folders.push(folder);
        }
    }
}

/// Those that we do not have, or not with this text.
fn wanted<'a>(messages: &'a [Seen], known: &HashMap<String, Known>) -> Vec<&'a Seen> {
    let mut met = std::collections::HashSet::new();
    let is_wanted = |seen: &&Seen| {
        let needs_fetching = match known.get(&seen.message) {
            None => true,
            Some(known) => match known.state {
                LedgerState::Gone if known.is_purged => false,
                LedgerState::Processed => seen.revision.is_some() && known.revision != seen.revision,
                LedgerState::Gone => known.email.is_none() || known.went_unfinished,
                // Whoever fetches it now may find it gone at the same moment, and nobody else would ask again.
                LedgerState::Queued | LedgerState::Processing | LedgerState::Failed | LedgerState::Skipped => true,
            },
        };
        needs_fetching && met.insert(seen.message.clone())
    };
    messages.iter().filter(is_wanted).collect()
}
