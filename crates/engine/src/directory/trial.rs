//! What would happen, without anything happening: everybody is listed into memory and held against what is recorded.

use std::collections::HashMap;

use domain::connector::Cursors;
use domain::{Person, Provider, UserId};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use store::sql::users::{KnownUser, User};

use super::plan::{Action, BATCH, Planned, Planner};
use super::view::View;
use super::{DiscoveryError, Item, Report};

pub async fn report(
    view: &View,
    store: &TenantStore,
    provider: Provider,
    progress: &(dyn Fn() + Send + Sync),
) -> Result<Report, DiscoveryError> {
    let groups = view.groups(progress).await?;
    let mut people = everybody(view, progress).await?;
    let told = addresses(store, provider, &people).await?;
    let planner = Planner { rules: &view.rules, groups: &groups, place: &view.place, provider, told };
    let mut report = Report { listed: people.len() as u64, is_whole: true, ..Report::default() };
    let mut after = None;
    loop {
        let mut known = store.list_known_users(provider, after, BATCH).await?;
        let Some(last) = known.last() else { break };
        after = Some(last.user.id);
        for known in &mut known {
            let told = people.remove(&known.user.person.id);
            known.user.is_there = told.is_some();
            known.user.person = told.unwrap_or_else(|| known.user.person.clone());
        }
        tell(&planner, store, known, &mut report).await?;
        progress();
    }
    let mut new: Vec<Person> = people.into_values().collect();
    new.sort_by(|one, other| one.address.cmp(&other.address));
    let mut new = new.into_iter().peekable();
    while new.peek().is_some() {
        let batch = new.by_ref().take(BATCH as usize).map(|person| unknown(store, provider, person)).collect();
        tell(&planner, store, batch, &mut report).await?;
        progress();
    }
    report.reason = report.is_strange();
    Ok(report)
}

/// Of those who are recorded, as they were told of just now. Who is not there any more has none.
async fn addresses(
    store: &TenantStore,
    provider: Provider,
    people: &HashMap<String, Person>,
) -> Result<HashMap<UserId, Option<String>>, DiscoveryError> {
    let (mut addresses, mut after) = (HashMap::new(), None);
    loop {
        let known = store.list_known_users(provider, after, BATCH).await?;
        let Some(last) = known.last() else { return Ok(addresses) };
        after = Some(last.user.id);
        let address = |known: &KnownUser| people.get(&known.user.person.id).and_then(|told| told.address.clone());
        addresses.extend(known.iter().map(|known| (known.user.id, address(known))));
    }
}

async fn everybody(
    view: &View,
    progress: &(dyn Fn() + Send + Sync),
) -> Result<HashMap<String, Person>, DiscoveryError> {
    let (mut people, mut cursors) = (HashMap::new(), Cursors::new());
    loop {
        let page = view.page(&cursors).await?;
        progress();
        people.extend(page.people.into_iter().map(|person| (person.id.clone(), person)));
        for gone in &page.gone {
            people.remove(gone);
        }
        if page.is_last {
            return Ok(people);
        }
        cursors = page.cursors;
    }
}

async fn tell(
    planner: &Planner<'_>,
    store: &TenantStore,
    known: Vec<KnownUser>,
    report: &mut Report,
) -> Result<(), DiscoveryError> {
    known.iter().for_each(|known| planner.count_one(known, report));
    // That a mailbox is tried again is no change that anybody asks for.
    let never = |_: &Mailbox| false;
    for planned in planner.plan(store, known, &never).await? {
        tell_one(planned, report);
    }
    Ok(())
}

fn tell_one(planned: Planned, report: &mut Report) {
    let Planned { known, action, .. } = planned;
    let (word, reason) = match action {
        Action::Nothing => return,
        Action::StayOut(reason) => ("leave_out", Some(reason)),
        Action::Leave(reason) => {
            report.left += 1;
            ("leave", Some(reason))
        }
        Action::Add { .. } => {
            report.added += 1;
            ("add", None)
        }
        Action::Adopt { .. } => {
            report.adopted += 1;
            ("adopt", None)
        }
        Action::GoOn { returns: true, .. } => {
            report.returned += 1;
            ("return", None)
        }
        Action::GoOn { rename: Some(_), .. } => {
            report.renamed += 1;
            ("rename", None)
        }
        Action::GoOn { .. } => return,
    };
    let Person { id, address, name, .. } = known.user.person;
    let reason = reason.map(|reason| reason.as_str().to_owned());
    report.name(Item { action: word.to_owned(), provider_user_id: id, address, name, reason });
}

/// Somebody of whom nothing is recorded.
fn unknown(store: &TenantStore, provider: Provider, person: Person) -> KnownUser {
    let now = store.clock().now();
    let user = User {
        id: UserId::new(store.clock()),
        provider,
        person,
        is_there: true,
        is_active: false,
        left_out: None,
        mailbox: None,
        created_at: now,
        updated_at: now,
    };
    KnownUser { user, listed: 0, mailbox: None }
}
