//! What must be stored by what the providers' mailboxes contain: one line of text per placement, for comparison.

use std::collections::{BTreeMap, BTreeSet};

use domain::Provider;
use sim::people::{DirectoryProvider, PersonState, PersonTruth};
use sim::{google, imap, microsoft};
use store::bench::StoredPlacement;

use super::providers::{CONTRACTOR, DemoProviders, GOOGLE, IMAP_ADDRESSES, MICROSOFT};

/// Folders at Outlook that are not synced by default, with all below them.
const EXCLUDED_FOLDERS: [&str; 7] =
    ["deleteditems", "junkemail", "conversationhistory", "outbox", "conflicts", "localfailures", "serverfailures"];

/// The mail that must be stored of one mailbox.
#[derive(Debug, Default)]
pub struct ExpectedMail {
    /// One line for each folder of each message, sorted.
    pub placements: Vec<String>,
    pub emails: u64,
}

/// Returns the addresses of the mailboxes that must exist, by tenant.
pub fn expected_mailboxes(providers: &DemoProviders) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut harbour = discovered_addresses(&*providers.google, GOOGLE);
    harbour.insert(CONTRACTOR.to_owned());
    let workshop = IMAP_ADDRESSES.iter().map(|address| (*address).to_owned()).collect();
    BTreeMap::from([
        ("harbour", harbour),
        ("orchard", discovered_addresses(&*providers.microsoft, MICROSOFT)),
        ("workshop", workshop),
    ])
}

/// Returns the addresses of an organisation that a discovery connects: of everybody who works there and has a mailbox.
fn discovered_addresses(world: &impl DirectoryProvider, domain: &str) -> BTreeSet<String> {
    let people = world.organisation(domain).map(|truth| truth.people).unwrap_or_default();
    people.values().filter(|person| is_discovered(person)).map(|person| person.address.clone()).collect()
}

fn is_discovered(person: &PersonTruth) -> bool {
    let is_left_out = person.is_suspended || person.is_archived || person.is_guest || !person.is_licensed;
    person.state == PersonState::Present && !is_left_out
}

/// Returns the mail that must be stored of a mailbox.
pub fn expected_mail(providers: &DemoProviders, provider: Provider, address: &str) -> ExpectedMail {
    match provider {
        Provider::Gmail => providers.google.truth(address).map(|truth| gmail(&truth)),
        Provider::Outlook => providers.microsoft.truth(address).map(|truth| outlook(&truth)),
        _ => providers.imap.truth(address).map(|truth| at_imap(&truth)),
    }
    .unwrap_or_default()
}

/// Returns the line of a stored placement.
pub fn stored_line(provider: Provider, placement: &StoredPlacement) -> String {
    let StoredPlacement { message, folder, uid, folder_name, flags, state, email, is_deleted } = placement;
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

fn sorted(mut placements: Vec<String>, emails: usize) -> ExpectedMail {
    placements.sort_unstable();
    ExpectedMail { placements, emails: emails as u64 }
}

fn gmail(truth: &google::GmailTruth) -> ExpectedMail {
    let (mut lines, mut emails) = (Vec::new(), 0);
    for (id, message) in &truth.messages {
        let has = |label: &str| message.label_ids.iter().any(|id| id == label);
        if ["TRASH", "SPAM", "DRAFT", "CHAT"].into_iter().any(has) {
            continue;
        }
        let flags = set_flags(&[(has("STARRED"), "flagged"), (!has("UNREAD"), "seen")]);
        let labels = message.label_ids.iter().map(String::as_str).filter(|id| !["STARRED", "UNREAD"].contains(id));
        lines.extend(["ALL_MAIL"].into_iter().chain(labels).map(|folder| line(folder, id, &flags, &message.sha256)));
        emails += 1;
    }
    sorted(lines, emails)
}

fn outlook(truth: &microsoft::OutlookTruth) -> ExpectedMail {
    let excluded = truth.folders.values().filter(|folder| {
        let is_excluded = folder.well_known.as_deref().is_some_and(|name| EXCLUDED_FOLDERS.contains(&name));
        folder.is_hidden || folder.is_search || is_excluded
    });
    let excluded: Vec<&str> = excluded.map(|folder| &*folder.path).collect();
    let mut lines = Vec::new();
    for (id, message) in &truth.messages {
        let folder = truth.folders.get(&message.folder_id);
        let is_drafts = folder.is_some_and(|folder| folder.well_known.as_deref() == Some("drafts"));
        if is_drafts || excluded.iter().any(|path| is_in_folder(&message.folder, path)) {
            continue;
        }
        let flags =
            set_flags(&[(message.is_draft, "draft"), (message.is_flagged, "flagged"), (message.is_read, "seen")]);
        lines.push(line(&message.folder_id, id, &flags, &message.sha256));
    }
    let emails = lines.len();
    sorted(lines, emails)
}

/// Returns whether a path is a folder or below it.
fn is_in_folder(path: &str, folder: &str) -> bool {
    path == folder || path.starts_with(&format!("{folder}/"))
}

fn set_flags(flags: &[(bool, &str)]) -> Vec<String> {
    flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()).collect()
}

/// The same bytes are one email of a mailbox, in however many folders.
fn at_imap(truth: &imap::ImapTruth) -> ExpectedMail {
    use imap::SpecialUse;
    let (mut lines, mut contents) = (Vec::new(), BTreeSet::new());
    for (name, folder) in &truth.folders {
        if matches!(folder.role, Some(SpecialUse::Drafts | SpecialUse::Trash | SpecialUse::Junk)) {
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
