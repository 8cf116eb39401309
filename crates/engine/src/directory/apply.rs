//! Applies the plan of a discovery: mailboxes are added, switched off and on, and renamed, many in one commit.

use std::collections::{HashMap, HashSet};

use domain::{Backfill, DirectoryPerson, ExclusionReason, MailboxEvent, MailboxId, MailboxSettings, SecretId, UserId};
use jiff::{SignedDuration, Timestamp};
use store::failpoint::Effect;
use store::sql::directories::DiscoveryToken;
use store::sql::mailboxes::{Mailbox, NewMailbox};
use store::sql::users::{UserDecision, UserWithMailbox};
use store::{Precondition, StoreError, TenantStore, TenantUnit};

use super::plan::{BATCH_USERS, PlannedUser, Planner, UserAction, is_app_only, opens_by_address};
use super::{DiscoveryError, DiscoveryReport};
use crate::Engine;
use crate::sync::{FetchForgotten, SyncMailbox};

/// How often a mailbox is connected again whose credentials are refused although the directory has its owner.
const REAUTH_RETRY_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// Attempts per batch: a person may add or change mailboxes at the same moment; then it is planned once more.
const MAX_ATTEMPTS: usize = 5;

#[derive(Debug)]
pub struct PlanApplier<'a> {
    pub engine: &'a Engine,
    pub store: &'a TenantStore,
    pub planner: &'a Planner<'a>,
    pub by: DiscoveryToken,
    pub backfill: Backfill,
    pub now: Timestamp,
}

/// The changes of one commit, for all of its users.
#[derive(Debug, Default)]
struct UnitChanges {
    new: Vec<NewMailbox>,
    syncs: Vec<MailboxId>,
    watches: Vec<MailboxId>,
    off: Vec<(MailboxId, Option<ExclusionReason>)>,
    on: Vec<(MailboxId, Option<ExclusionReason>)>,
    settled: Vec<UserDecision>,
    /// Mailboxes that gave up their address, and would still open whoever has it now.
    displaced: Vec<MailboxId>,
    /// How often this commit has changed each mailbox so far.
    changed: HashMap<MailboxId, u64>,
}

impl UnitChanges {
    /// Expects the version at which a mailbox was read before it is changed: a person may have changed it meanwhile.
    fn change(&mut self, unit: &mut TenantUnit, mailbox: &Mailbox) {
        let before = self.changed.entry(mailbox.id).or_default();
        unit.expect_mailbox(mailbox.id, mailbox.version + *before);
        *before += 1;
    }

    /// Records a decision about a user, who is excluded if there is a reason for it.
    fn settle(&mut self, user: UserId, left_out: Option<ExclusionReason>, mailbox: Option<MailboxId>) {
        self.settled.push(UserDecision { user, is_active: left_out.is_none(), left_out, mailbox });
    }
}

impl PlanApplier<'_> {
    pub async fn run(
        &self,
        report: &mut DiscoveryReport,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<(), DiscoveryError> {
        let mut after = None;
        loop {
            let known = self.store.list_users_with_mailboxes(self.by.provider, after, BATCH_USERS).await?;
            let Some(last) = known.last().map(|known| known.user.id) else { return Ok(()) };
            self.batch(after, known, report).await?;
            after = Some(last);
            progress();
        }
    }

    /// Applies the plan of the users after a given one.
    async fn batch(
        &self,
        after: Option<UserId>,
        mut known: Vec<UserWithMailbox>,
        report: &mut DiscoveryReport,
    ) -> Result<(), DiscoveryError> {
        for attempt in 1.. {
            let planned = self
                .planner
                .plan(self.store, known, &|mailbox| self.now.duration_since(mailbox.state_since) > REAUTH_RETRY_AFTER)
                .await?;
            if planned.iter().all(|planned| matches!(planned.action, UserAction::Nothing)) {
                return Ok(());
            }
            let mut applied = DiscoveryReport::default();
            let unit = self.unit(planned, &mut applied)?;
            match unit.commit_at(Effect::SettlePeople).await {
                Ok(_) => {}
                Err(StoreError::Precondition(Precondition::MailboxExists | Precondition::MailboxChanged))
                    if attempt < MAX_ATTEMPTS =>
                {
                    known = self.store.list_users_with_mailboxes(self.by.provider, after, BATCH_USERS).await?;
                    continue;
                }
                Err(e) => return Err(e.into()),
            }
            report.added += applied.added;
            report.adopted += applied.adopted;
            report.returned += applied.returned;
            report.left += applied.left;
            report.renamed += applied.renamed;
            return Ok(());
        }
        Ok(())
    }

    fn unit(&self, planned: Vec<PlannedUser>, applied: &mut DiscoveryReport) -> anyhow::Result<TenantUnit> {
        let mut unit = self.store.write();
        unit.guard_directory(self.by);
        let mut changes = UnitChanges::default();
        for PlannedUser { known, action, displaced } in planned {
            if let Some((mailbox, address)) = displaced {
                changes.change(&mut unit, &mailbox);
                unit.rename_mailbox(mailbox.id, &address, mailbox.settings.clone());
                if opens_by_address(&mailbox) {
                    // A sync that is running may list the mail of the address's new owner.
                    unit.restart_sync(mailbox.id);
                    changes.displaced.push(mailbox.id);
                }
            }
            let person = &known.user.person;
            let user = known.user.id;
            match action {
                UserAction::Nothing => {}
                UserAction::Exclude(reason) => changes.settle(user, Some(reason), known.user.mailbox),
                UserAction::Remove(reason) => {
                    changes.settle(user, Some(reason), known.user.mailbox);
                    changes.off.extend(known.user.mailbox.map(|mailbox| (mailbox, Some(reason))));
                    applied.left += 1;
                }
                UserAction::Add { address, replaces } => {
                    let id = replaces.unwrap_or_else(|| MailboxId::new(self.engine.store.clock()));
                    changes.settle(user, None, Some(id));
                    let settings = self.planner.settings(person, &address);
                    let new = self.new_mailbox(id, address, settings)?;
                    changes.syncs.push(id);
                    match replaces {
                        Some(_) => {
                            unit.add_mailbox(new);
                            changes.watches.push(id);
                        }
                        None => changes.new.push(new),
                    }
                    applied.added += 1;
                }
                UserAction::Adopt { mailbox, address } => {
                    changes.settle(user, None, Some(mailbox.id));
                    let settings = self.planner.connection(person, &mailbox, &address);
                    changes.change(&mut unit, &mailbox);
                    if address == mailbox.address {
                        unit.change_mailbox(mailbox.id, settings, mailbox.secret_ref.as_deref());
                    } else {
                        unit.rename_mailbox(mailbox.id, &address, settings);
                        changes.watches.push(mailbox.id);
                    }
                    changes.on.push((mailbox.id, None));
                    changes.syncs.push(mailbox.id);
                    applied.adopted += 1;
                }
                UserAction::Continue { returns, rename, reconnect } => {
                    let Some(mailbox) = &known.mailbox else { continue };
                    changes.settle(user, None, Some(mailbox.id));
                    if let Some(address) = &rename {
                        self.rename(&mut unit, &mut changes, person, mailbox, address);
                        applied.renamed += 1;
                    }
                    if reconnect {
                        unit.apply_mailbox_event(mailbox.id, MailboxEvent::AccessRestored, None);
                        *changes.changed.entry(mailbox.id).or_default() += 1;
                    }
                    if returns {
                        changes.on.push((mailbox.id, None));
                        applied.returned += 1;
                    }
                    changes.syncs.push(mailbox.id);
                    changes.watches.push(mailbox.id);
                }
            }
        }
        self.finish(unit, changes)
    }

    /// Renames a mailbox, and updates the user that it opens.
    fn rename(
        &self,
        unit: &mut TenantUnit,
        changes: &mut UnitChanges,
        person: &DirectoryPerson,
        mailbox: &Mailbox,
        address: &str,
    ) {
        let settings = self.planner.connection(person, mailbox, address);
        // Graph's user ids never change; what Google opens by an address may be another person's by now.
        let (user, user_before) = (&settings.connection["user"], &mailbox.settings.connection["user"]);
        let is_another = is_app_only(mailbox) && user != user_before;
        changes.change(unit, mailbox);
        unit.rename_mailbox(mailbox.id, address, settings);
        unit.delete_secret(SecretId::of_access_token(mailbox.id));
        if is_another {
            unit.restart_sync(mailbox.id);
        }
        // Another user of this very commit may have taken its address before.
        changes.displaced.retain(|displaced| *displaced != mailbox.id);
    }

    fn finish(&self, mut unit: TenantUnit, changes: UnitChanges) -> anyhow::Result<TenantUnit> {
        unit.add_mailboxes(changes.new);
        // Switched off until it is their owner's turn.
        let mut off = changes.off;
        let is_off: HashSet<MailboxId> = off.iter().map(|(mailbox, _)| *mailbox).collect();
        off.extend(
            changes
                .displaced
                .into_iter()
                .filter(|displaced| !is_off.contains(displaced))
                .map(|displaced| (displaced, None)),
        );
        unit.set_mailboxes_active(&off, false);
        unit.set_mailboxes_active(&changes.on, true);
        unit.request_watches(&changes.watches);
        unit.settle_users(&changes.settled);
        let mut jobs = Vec::with_capacity(changes.syncs.len());
        for mailbox in changes.syncs {
            jobs.push(SyncMailbox::request(self.engine.store.clock(), mailbox)?);
        }
        unit.enqueue(jobs);
        if !changes.on.is_empty() {
            unit.enqueue(vec![FetchForgotten::request(self.engine.store.clock())?]);
        }
        Ok(unit)
    }

    fn new_mailbox(&self, id: MailboxId, address: String, settings: MailboxSettings) -> anyhow::Result<NewMailbox> {
        settings.check()?;
        let since = self.backfill.since(self.now);
        Ok(NewMailbox { id, provider: self.by.provider, address, settings, secret_ref: None, since })
    }
}
