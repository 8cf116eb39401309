//! What really is in the providers' mailboxes, as it has to be found here: place by place, comparable as text.

use std::collections::{BTreeMap, BTreeSet};

use domain::Provider;
use sim::people::{Organised, State};
use sim::{google, imap, microsoft};
use store::sql::sync::StoredPlace;

use super::providers::{AT_IMAP, CONTRACTOR, GOOGLE, MICROSOFT, Providers};

/// Folders at Outlook whose mail nobody wants unless it is said, and what lies below them.
const UNWANTED: [&str; 7] =
    ["deleteditems", "junkemail", "conversationhistory", "outbox", "conflicts", "localfailures", "serverfailures"];

/// One mailbox.
#[derive(Debug, Default)]
pub struct Truth {
    /// Each place of each message that is wanted, sorted.
    pub places: Vec<String>,
    /// How many emails that is.
    pub emails: u64,
}

/// Whose mailboxes are taken in, by tenant.
pub fn expected(providers: &Providers) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut harbour = wanted(&*providers.google, GOOGLE);
    harbour.insert(CONTRACTOR.to_owned());
    let workshop = AT_IMAP.iter().map(|address| (*address).to_owned()).collect();
    BTreeMap::from([
        ("harbour", harbour),
        ("orchard", wanted(&*providers.microsoft, MICROSOFT)),
        ("workshop", workshop),
    ])
}

/// Everybody who works there and has a mailbox.
fn wanted(world: &impl Organised, domain: &str) -> BTreeSet<String> {
    let people = world.organisation(domain).map(|truth| truth.people).unwrap_or_default();
    let is_wanted = |person: &&sim::people::TruthPerson| {
        let is_left_out = person.is_suspended || person.is_archived || person.is_guest || !person.is_licensed;
        person.state == State::Present && !is_left_out
    };
    people.values().filter(is_wanted).map(|person| person.address.clone()).collect()
}

pub fn of(providers: &Providers, provider: Provider, address: &str) -> Truth {
    match provider {
        Provider::Gmail => providers.google.truth(address).map(|truth| gmail(&truth)),
        Provider::Outlook => providers.microsoft.truth(address).map(|truth| outlook(&truth)),
        _ => providers.imap.truth(address).map(|truth| at_imap(&truth)),
    }
    .unwrap_or_default()
}

/// The same of what is stored.
pub fn stored(provider: Provider, place: &StoredPlace) -> String {
    let StoredPlace { message, folder, uid, folder_name, flags, state, email, is_deleted } = place;
    let sha256 = email.as_ref().map_or_else(|| state.as_str().to_owned(), |(_, sha256)| sha256.hex());
    let line = match provider {
        Provider::Imap => line(folder_name, uid, flags, &sha256),
        _ => line(folder, message, flags, &sha256),
    };
    if *is_deleted { format!("{line}, deleted") } else { line }
}

fn line(folder: &str, message: &str, flags: &[String], sha256: &str) -> String {
    format!("{message} in {folder} {flags:?} {sha256}")
}

fn sorted(mut places: Vec<String>, emails: usize) -> Truth {
    places.sort_unstable();
    Truth { places, emails: emails as u64 }
}

fn gmail(truth: &google::Truth) -> Truth {
    let (mut lines, mut emails) = (Vec::new(), 0);
    for (id, message) in &truth.messages {
        let has = |label: &str| message.label_ids.iter().any(|id| id == label);
        if ["TRASH", "SPAM", "DRAFT", "CHAT"].into_iter().any(has) {
            continue;
        }
        let marks = [(has("STARRED"), "flagged"), (!has("UNREAD"), "seen")];
        let flags: Vec<String> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).into()).collect();
        let labels = message.label_ids.iter().map(String::as_str).filter(|id| !["STARRED", "UNREAD"].contains(id));
        lines.extend(["ALL_MAIL"].into_iter().chain(labels).map(|folder| line(folder, id, &flags, &message.sha256)));
        emails += 1;
    }
    sorted(lines, emails)
}

fn outlook(truth: &microsoft::Truth) -> Truth {
    let is_below = |path: &str, above: &str| path == above || path.starts_with(&format!("{above}/"));
    let is_drafts = |id: &String| truth.folders.get(id).is_some_and(|it| it.well_known.as_deref() == Some("drafts"));
    let unwanted = truth.folders.values().filter(|folder| {
        let is_unwanted = folder.well_known.as_deref().is_some_and(|name| UNWANTED.contains(&name));
        folder.is_hidden || folder.is_search || is_unwanted
    });
    let unwanted: Vec<&str> = unwanted.map(|folder| &*folder.path).collect();
    let mut lines = Vec::new();
    for (id, message) in &truth.messages {
        if is_drafts(&message.folder_id) || unwanted.iter().any(|path| is_below(&message.folder, path)) {
            continue;
        }
        let marks = [(message.is_draft, "draft"), (message.is_flagged, "flagged"), (message.is_read, "seen")];
        let flags: Vec<String> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).into()).collect();
        lines.push(line(&message.folder_id, id, &flags, &message.sha256));
    }
    let emails = lines.len();
    sorted(lines, emails)
}

/// The same bytes are one email of a mailbox, in however many places.
fn at_imap(truth: &imap::Truth) -> Truth {
    use imap::Role;
    let (mut lines, mut contents) = (Vec::new(), BTreeSet::new());
    for (name, folder) in &truth.folders {
        if matches!(folder.role, Some(Role::Drafts | Role::Trash | Role::Junk)) {
            continue;
        }
        for (uid, message) in &folder.messages {
            let mut flags: Vec<String> =
                message.flags.iter().map(|flag| flag.trim_start_matches('\\').to_lowercase()).collect();
            flags.sort();
            lines.push(line(name, &format!("{}.{uid}", folder.uid_validity), &flags, &message.sha256));
            contents.insert(&message.sha256);
        }
    }
    let emails = contents.len();
    sorted(lines, emails)
}
