//! What was planned is done: mailboxes are made, switched off and on, and called otherwise, many in one commit.

use std::collections::{HashMap, HashSet};

use domain::{Lane, LeftOut, MailboxId, MailboxState, Person, SecretId, UserId};
use jiff::{SignedDuration, Timestamp};
use jobs::new_job;
use store::failpoint::{self, Effect};
use store::sql::directories::By;
use store::sql::mailboxes::{MAILBOX_CHANGED, MAILBOX_EXISTS, Mailbox, NewMailbox};
use store::sql::users::{KnownUser, Settled};
use store::{StoreError, TenantStore, TenantUnit};

use super::plan::{Action, BATCH, Planned, Planner, is_app_only, opens_its_name};
use super::{DiscoveryError, Report};
use crate::Engine;
use crate::jobs::FetchForgotten;
use crate::mailboxes::Backfill;
use crate::sync::{SyncMailbox, only_one};

/// A mailbox that is refused although the directory has its owner is tried again once a day.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// Somebody may add or change mailboxes by hand at the same moment; then it is planned once more.
const TRIES: usize = 5;

#[derive(Debug)]
pub struct Apply<'a> {
    pub engine: &'a Engine,
    pub store: &'a TenantStore,
    pub planner: &'a Planner<'a>,
    pub by: By,
    pub backfill: Backfill,
    pub now: Timestamp,
}

/// What a commit has for all of its people.
#[derive(Debug, Default)]
struct Together {
    new: Vec<NewMailbox>,
    looks: Vec<MailboxId>,
    watches: Vec<MailboxId>,
    off: Vec<(MailboxId, Option<LeftOut>)>,
    on: Vec<(MailboxId, Option<LeftOut>)>,
    settled: Vec<Settled>,
    /// They have given up their names, and would still open whoever is called so.
    aside: Vec<MailboxId>,
    /// How often they are changed by this commit so far.
    changed: HashMap<MailboxId, u64>,
}

impl Together {
    /// It is about to be changed, from what it was when it was read: somebody may have changed it meanwhile.
    fn change(&mut self, unit: &mut TenantUnit, mailbox: &Mailbox) {
        let before = self.changed.entry(mailbox.id).or_default();
        unit.expect_mailbox(mailbox.id, mailbox.version + *before);
        *before += 1;
    }
}

impl Apply<'_> {
    pub async fn run(&self, report: &mut Report, progress: &(dyn Fn() + Send + Sync)) -> Result<(), DiscoveryError> {
        let mut after = None;
        loop {
            let known = self.store.list_known_users(self.by.provider, after, BATCH).await?;
            let Some(last) = known.last().map(|known| known.user.id) else { return Ok(()) };
            self.batch(after, known, report).await?;
            after = Some(last);
            progress();
        }
    }

    /// Those after a given one.
    async fn batch(
        &self,
        after: Option<UserId>,
        mut known: Vec<KnownUser>,
        report: &mut Report,
    ) -> Result<(), DiscoveryError> {
        for attempt in 1.. {
            let is_stale = |mailbox: &Mailbox| self.now.duration_since(mailbox.state_since) > AGAIN_AFTER;
            let planned = self.planner.plan(self.store, known, &is_stale).await?;
            if planned.iter().all(|planned| matches!(planned.action, Action::Nothing)) {
                return Ok(());
            }
            let mut found = Report::default();
            let unit = self.unit(planned, &mut found)?;
            failpoint::before(Effect::SettlePeople);
            match unit.commit().await {
                Ok(_) => {}
                Err(StoreError::Precondition(MAILBOX_EXISTS | MAILBOX_CHANGED)) if attempt < TRIES => {
                    known = self.store.list_known_users(self.by.provider, after, BATCH).await?;
                    continue;
                }
                Err(e) => return Err(e.into()),
            }
            failpoint::after(Effect::SettlePeople);
            report.added += found.added;
            report.adopted += found.adopted;
            report.returned += found.returned;
            report.left += found.left;
            report.renamed += found.renamed;
            return Ok(());
        }
        Ok(())
    }

    fn unit(&self, planned: Vec<Planned>, found: &mut Report) -> anyhow::Result<TenantUnit> {
        let mut unit = self.store.write();
        unit.guard_directory(self.by);
        let mut all = Together::default();
        for Planned { known, action, aside } in planned {
            if let Some((mailbox, address)) = aside {
                all.change(&mut unit, &mailbox);
                unit.rename_mailbox(mailbox.id, &address, mailbox.settings.clone());
                if opens_its_name(&mailbox) {
                    // Whoever lists it at this moment may list what is the other's.
                    unit.sync_another(mailbox.id);
                    all.aside.push(mailbox.id);
                }
            }
            let person = &known.user.person;
            let mut settle = |left_out: Option<LeftOut>, mailbox| {
                let is_active = left_out.is_none();
                all.settled.push(Settled { user: known.user.id, is_active, left_out, mailbox });
            };
            match action {
                Action::Nothing => {}
                Action::StayOut(reason) => settle(Some(reason), known.user.mailbox),
                Action::Leave(reason) => {
                    settle(Some(reason), known.user.mailbox);
                    all.off.extend(known.user.mailbox.map(|mailbox| (mailbox, Some(reason))));
                    found.left += 1;
                }
                Action::Add { address, over } => {
                    let id = over.unwrap_or_else(|| MailboxId::new(self.engine.store.clock()));
                    settle(None, Some(id));
                    let settings = self.planner.settings(person, &address);
                    let new = self.new_mailbox(id, address, settings);
                    all.looks.push(id);
                    match over {
                        Some(_) => {
                            unit.add_mailbox(new);
                            all.watches.push(id);
                        }
                        None => all.new.push(new),
                    }
                    found.added += 1;
                }
                Action::Adopt { mailbox, address } => {
                    settle(None, Some(mailbox.id));
                    let settings = self.planner.connection(person, &mailbox, &address);
                    all.change(&mut unit, &mailbox);
                    match address == mailbox.address {
                        true => unit.change_mailbox(mailbox.id, settings, mailbox.secret_ref.as_deref()),
                        false => {
                            unit.rename_mailbox(mailbox.id, &address, settings);
                            all.watches.push(mailbox.id);
                        }
                    }
                    all.on.push((mailbox.id, None));
                    all.looks.push(mailbox.id);
                    found.adopted += 1;
                }
                Action::GoOn { returns, rename, again } => {
                    let Some(mailbox) = &known.mailbox else { continue };
                    settle(None, Some(mailbox.id));
                    if let Some(address) = &rename {
                        self.rename(&mut unit, &mut all, person, mailbox, address);
                        found.renamed += 1;
                    }
                    if again {
                        let from = [MailboxState::NeedsReauth];
                        unit.move_mailbox(mailbox.id, &from, MailboxState::Connecting, None);
                        *all.changed.entry(mailbox.id).or_default() += 1;
                    }
                    if returns {
                        all.on.push((mailbox.id, None));
                        found.returned += 1;
                    }
                    all.looks.push(mailbox.id);
                    all.watches.push(mailbox.id);
                }
            }
        }
        self.finish(unit, all)
    }

    /// Of somebody who has it already: what it is called, and whom it opens.
    fn rename(&self, unit: &mut TenantUnit, all: &mut Together, person: &Person, mailbox: &Mailbox, address: &str) {
        let settings = self.planner.connection(person, mailbox, address);
        // Graph's names of people never change; what Google opens by an address may be somebody else's by now.
        let user = |settings: &serde_json::Value| settings["connection"]["user"].clone();
        let is_another = is_app_only(mailbox) && user(&settings) != user(&mailbox.settings);
        all.change(unit, mailbox);
        unit.rename_mailbox(mailbox.id, address, settings);
        unit.delete_secret(SecretId::of_access_token(mailbox.id));
        if is_another {
            unit.sync_another(mailbox.id);
        }
        // Somebody in this very commit may have taken its name before.
        all.aside.retain(|aside| *aside != mailbox.id);
    }

    fn finish(&self, mut unit: TenantUnit, all: Together) -> anyhow::Result<TenantUnit> {
        unit.add_mailboxes(all.new);
        // Until it is their owner's turn.
        let mut off = all.off;
        let is_off: HashSet<MailboxId> = off.iter().map(|(mailbox, _)| *mailbox).collect();
        off.extend(all.aside.into_iter().filter(|aside| !is_off.contains(aside)).map(|aside| (aside, None)));
        unit.switch_mailboxes(&off, false);
        unit.switch_mailboxes(&all.on, true);
        unit.want_watches(&all.watches);
        unit.settle_users(&all.settled);
        let look = |mailbox: &MailboxId| {
            let job = new_job(&SyncMailbox { mailbox: *mailbox }, self.engine.store.clock(), None)?;
            anyhow::Ok(only_one(store::sql::jobs::NewJob { lane: Lane::Normal, ..job }, *mailbox))
        };
        unit.enqueue(all.looks.iter().map(look).collect::<anyhow::Result<_>>()?);
        if !all.on.is_empty() {
            unit.enqueue(vec![FetchForgotten::now(self.engine.store.clock())?]);
        }
        Ok(unit)
    }

    fn new_mailbox(&self, id: MailboxId, address: String, settings: serde_json::Value) -> NewMailbox {
        let since = self.backfill.since(self.now);
        NewMailbox { id, provider: self.by.provider, address, settings, secret_ref: None, since }
    }
}
