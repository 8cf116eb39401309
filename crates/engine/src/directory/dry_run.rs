//! The dry run of a discovery: lists all users into memory and compares them with the records, without changing
//! anything.

use std::collections::HashMap;

use domain::connector::Cursors;
use domain::{DirectoryPerson, Provider, UserId};
use store::TenantStore;
use store::sql::users::{User, UserWithMailbox};

use super::client::DirectoryClient;
use super::plan::{BATCH_USERS, PlannedUser, Planner, UserAction};
use super::{DiscoveryError, DiscoveryReport, ReportItem};

pub async fn report(
    client: &DirectoryClient,
    store: &TenantStore,
    provider: Provider,
    progress: &(dyn Fn() + Send + Sync),
) -> Result<DiscoveryReport, DiscoveryError> {
    let groups = client.groups(progress).await?;
    let mut people = list_users(client, progress).await?;
    let current_addresses = current_addresses_of(store, provider, &people).await?;
    let planner =
        Planner { rules: &client.rules, groups: &groups, location: &client.location, provider, current_addresses };
    let mut report = DiscoveryReport { listed: people.len() as u64, is_whole: true, ..DiscoveryReport::default() };
    let mut after = None;
    loop {
        let mut known = store.list_users_with_mailboxes(provider, after, BATCH_USERS).await?;
        let Some(last) = known.last() else { break };
        after = Some(last.user.id);
        for known in &mut known {
            let listed = people.remove(&known.user.person.id);
            known.user.is_listed = listed.is_some();
            known.user.person = listed.unwrap_or_else(|| known.user.person.clone());
        }
        add_to_report(&planner, store, known, &mut report).await?;
        progress();
    }
    let mut new: Vec<DirectoryPerson> = people.into_values().collect();
    new.sort_by(|one, other| one.address.cmp(&other.address));
    let mut new = new.into_iter().peekable();
    while new.peek().is_some() {
        let batch = new.by_ref().take(BATCH_USERS as usize).map(|person| new_user(store, provider, person)).collect();
        add_to_report(&planner, store, batch, &mut report).await?;
        progress();
    }
    report.reason = report.too_many_leave();
    Ok(report)
}

/// Returns the addresses of recorded users as they were just listed; `None` for users who are gone.
async fn current_addresses_of(
    store: &TenantStore,
    provider: Provider,
    people: &HashMap<String, DirectoryPerson>,
) -> Result<HashMap<UserId, Option<String>>, DiscoveryError> {
    let (mut addresses, mut after) = (HashMap::new(), None);
    loop {
        let known = store.list_users_with_mailboxes(provider, after, BATCH_USERS).await?;
        let Some(last) = known.last() else { return Ok(addresses) };
        after = Some(last.user.id);
        for known in &known {
            let listed = people.get(&known.user.person.id);
            addresses.insert(known.user.id, listed.and_then(|person| person.address.clone()));
        }
    }
}

async fn list_users(
    client: &DirectoryClient,
    progress: &(dyn Fn() + Send + Sync),
) -> Result<HashMap<String, DirectoryPerson>, DiscoveryError> {
    let (mut people, mut cursors) = (HashMap::new(), Cursors::new());
    loop {
        let page = client.page(&cursors).await?;
        progress();
        people.extend(page.people.into_iter().map(|person| (person.id.clone(), person)));
        for gone in &page.removed {
            people.remove(gone);
        }
        if page.is_last {
            return Ok(people);
        }
        cursors = page.cursors;
    }
}

async fn add_to_report(
    planner: &Planner<'_>,
    store: &TenantStore,
    known: Vec<UserWithMailbox>,
    report: &mut DiscoveryReport,
) -> Result<(), DiscoveryError> {
    known.iter().for_each(|known| planner.count_one(known, report));
    // Connecting a mailbox again is not a change that is reported.
    for planned in planner.plan(store, known, &|_| false).await? {
        add_item(planned, report);
    }
    Ok(())
}

fn add_item(planned: PlannedUser, report: &mut DiscoveryReport) {
    let PlannedUser { known, action, .. } = planned;
    let (word, reason) = match action {
        UserAction::Nothing => return,
        UserAction::Exclude(reason) => ("leave_out", Some(reason)),
        UserAction::Remove(reason) => {
            report.left += 1;
            ("leave", Some(reason))
        }
        UserAction::Add { .. } => {
            report.added += 1;
            ("add", None)
        }
        UserAction::Adopt { .. } => {
            report.adopted += 1;
            ("adopt", None)
        }
        UserAction::Continue { returns: true, .. } => {
            report.returned += 1;
            ("return", None)
        }
        UserAction::Continue { rename: Some(_), .. } => {
            report.renamed += 1;
            ("rename", None)
        }
        UserAction::Continue { .. } => return,
    };
    let DirectoryPerson { id, address, name, .. } = known.user.person;
    let reason = reason.map(|reason| reason.as_str().to_owned());
    report.add_item(ReportItem { action: word.to_owned(), provider_user_id: id, address, name, reason });
}

/// Returns a user of whom nothing is recorded.
fn new_user(store: &TenantStore, provider: Provider, person: DirectoryPerson) -> UserWithMailbox {
    let now = store.clock().now();
    let user = User {
        id: UserId::new(store.clock()),
        provider,
        person,
        is_listed: true,
        is_active: false,
        left_out: None,
        mailbox: None,
        created_at: now,
        updated_at: now,
    };
    UserWithMailbox { user, listed: 0, mailbox: None }
}
