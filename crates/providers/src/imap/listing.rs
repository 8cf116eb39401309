//! Listings of a mailbox, folder by folder, from the newest message to the oldest.

use domain::ConnectorError;
use domain::connector::{ConnectorAccount, Cursors, FolderRole, KnownFolder, ListingPage};
use jiff::{SignedDuration, Timestamp};

use super::changes::{MAX_PAGE_MESSAGES, is_folder_refusal, largest, list_metadata};
use super::client::{FetchItems, ImapError, SearchCriteria, UidSet};
use super::cursor::{FolderCursor, ListingCursor, read, text};
use super::folders::{FolderMatches, MatchedFolder};
use super::sessions::Session;

/// Folders that are opened for one page.
const MAX_PAGE_FOLDERS: usize = 50;

/// Overlap of a search by date: servers search by whole days of their own clock.
const SEARCH_DATE_OVERLAP: SignedDuration = SignedDuration::from_hours(24);

/// Lists the messages from before the first sync; the folders are known already.
pub async fn list_history(
    session: &mut Session,
    account: &ConnectorAccount,
    (cursors, followed): (&Cursors, &Cursors),
    since: Option<Timestamp>,
) -> Result<ListingPage, ConnectorError> {
    let matches = session.folders(account).await?;
    let start =
        ListingStart { cursors, followed: Some(followed), skips_unfollowed: true, known_folders: &account.folders };
    list_page(session, &matches, start, since, ListingPage::default()).await
}

/// Lists the whole mailbox with its folders.
pub async fn list_all(
    session: &mut Session,
    account: &ConnectorAccount,
    (cursors, followed): (&Cursors, Option<&Cursors>),
) -> Result<ListingPage, ConnectorError> {
    let matches = session.folders(account).await?;
    let mut page = ListingPage::default();
    page.missing_folders.clone_from(&matches.missing);
    if cursors.is_empty() {
        page.folders = matches.folders.iter().map(|folder| folder.seen.clone()).collect();
    } else {
        let changed = matches.folders.iter().filter(|folder| folder.is_changed);
        page.folders = changed.map(|folder| folder.seen.clone()).collect();
    }
    // A folder that a comparison does not open would count as empty.
    let start = ListingStart { cursors, followed, skips_unfollowed: false, known_folders: &account.folders };
    list_page(session, &matches, start, None, page).await
}

/// Start of a page.
#[derive(Clone, Copy)]
struct ListingStart<'a> {
    cursors: &'a Cursors,
    /// Cursors of the changes.
    followed: Option<&'a Cursors>,
    /// Whether folders without a cursor of the changes are left to the changes.
    skips_unfollowed: bool,
    known_folders: &'a [KnownFolder],
}

/// The folders that are listed for a page.
#[derive(Default)]
struct ListingPlan<'a> {
    folders: Vec<(&'a MatchedFolder, ListingCursor)>,
    /// The name of a folder that was not listed to its end, and that this listing of the folders is the first to lack: it
    /// waits until that is confirmed.
    waits_for: Option<&'a str>,
}

async fn list_page(
    session: &mut Session,
    matches: &FolderMatches,
    start: ListingStart<'_>,
    since: Option<Timestamp>,
    mut page: ListingPage,
) -> Result<ListingPage, ConnectorError> {
    let cursors = start.cursors;
    let ListingPlan { mut folders, waits_for: mut unavailable } = plan(matches, start, &mut page)?;
    folders.sort_by(|(a, _), (b, _)| order(a).cmp(&order(b)));
    page.is_last = unavailable.is_none();
    let mut opened = 0;
    for (folder, cursor) in folders {
        let next = if opened < MAX_PAGE_FOLDERS && page.seen.len() < MAX_PAGE_MESSAGES {
            match list_folder(session, folder, cursor, since, &mut page).await {
                Ok(next) => {
                    opened += 1; // folders that cannot be opened must not count
                    next
                }
                // It was removed since it was listed, which the next page shows, or cannot be opened, perhaps temporarily.
                Err(ImapError::Refused(refusal)) if is_folder_refusal(&refusal) => {
                    unavailable = Some(&folder.seen.name);
                    Some(cursor)
                }
                Err(e) => return Err(e.into()),
            }
        } else {
            Some(cursor)
        };
        page.is_last &= next.is_none();
        let next = next.map(|cursor| text(&cursor)).transpose()?.unwrap_or_default();
        if cursors.get(&folder.id) != Some(&next) {
            page.cursors.insert(folder.id.clone(), next);
        }
    }
    if let Some(folder) = unavailable
        && page.seen.is_empty()
        && page.cursors.is_empty()
        && !reports_missing(&page, start.known_folders)
    {
        // An end of the listing would mean that the messages of these folders are gone.
        return Err(ConnectorError::FolderUnavailable(folder.to_owned()));
    }
    Ok(page)
}

/// Returns whether the page is the first to lack a folder, which has to be recorded.
fn reports_missing(page: &ListingPage, known_folders: &[KnownFolder]) -> bool {
    known_folders.iter().any(|known| known.missing_since.is_none() && page.missing_folders.contains(&known.id))
}

/// Returns the folders to list: all of them at first, later those that have a cursor.
fn plan<'a>(
    matches: &'a FolderMatches,
    start: ListingStart<'a>,
    page: &mut ListingPage,
) -> Result<ListingPlan<'a>, ConnectorError> {
    let mut plan = ListingPlan::default();
    if start.cursors.is_empty() {
        for folder in matches.folders.iter().filter(|folder| folder.is_in_scope) {
            plan.folders.extend(start_of_folder(folder, start)?);
        }
        return Ok(plan);
    }
    for (id, cursor) in start.cursors {
        let known = start.known_folders.iter().find(|known| known.id == *id);
        match (matches.find(id), known) {
            (Some(folder), _) => plan.folders.push((folder, read(cursor)?)),
            (None, Some(known)) if known.missing_since.is_none() => plan.waits_for = Some(&known.name),
            (None, _) => drop(page.cursors.insert(id.clone(), String::new())),
        }
    }
    Ok(plan)
}

/// Returns the start of a folder's listing, or `None` if the changes will report the whole folder.
fn start_of_folder<'a>(
    folder: &'a MatchedFolder,
    start: ListingStart<'_>,
) -> Result<Option<(&'a MatchedFolder, ListingCursor)>, ConnectorError> {
    let validity = folder.status.uid_validity.unwrap_or(0);
    let cursor = start.followed.and_then(|followed| followed.get(&folder.id)).map(|cursor| read(cursor)).transpose()?;
    let below = match cursor {
        Some(FolderCursor { validity: known, next, .. }) if known == validity => next,
        None if start.skips_unfollowed => return Ok(None),
        _ => u32::MAX,
    };
    Ok(Some((folder, ListingCursor { validity, below })))
}

/// Sorts the inbox first.
fn order(folder: &MatchedFolder) -> (bool, &str) {
    (folder.seen.role != Some(FolderRole::Inbox), &folder.seen.name)
}

/// Lists the next messages of a folder. Returns the next cursor, or `None` at the end.
async fn list_folder(
    session: &mut Session,
    folder: &MatchedFolder,
    cursor: ListingCursor,
    since: Option<Timestamp>,
    page: &mut ListingPage,
) -> Result<Option<ListingCursor>, ImapError> {
    let examined = session.examine(&folder.wire).await?;
    let validity = examined.uid_validity.unwrap_or(cursor.validity);
    // A folder that was replaced is listed from its newest message.
    let below = if validity == cursor.validity { cursor.below } else { examined.uid_next.unwrap_or(u32::MAX) };
    if below <= 1 || examined.exists == 0 {
        return Ok(None);
    }
    let day = since
        .and_then(|since| since.checked_sub(SEARCH_DATE_OVERLAP).ok())
        .map(|time| time.to_zoned(jiff::tz::TimeZone::UTC).date());
    let search = SearchCriteria { since: day, within: Some(UidSet::range(1, below - 1)) };
    let uids = session.client().search(&search).await?;
    let uids_of_page = largest(&uids, MAX_PAGE_MESSAGES.saturating_sub(page.seen.len()).max(1));
    let found = list_metadata(session, &uids_of_page, FetchItems::All, None).await?;
    let found = found.into_iter().rev().filter(|found| found.received_at.is_none() || found.received_at >= since);
    page.seen.extend(found.map(|found| found.seen(&folder.id, validity)));
    let is_all = uids_of_page.len() == uids.len();
    Ok(uids_of_page.first().filter(|_| !is_all).map(|below| ListingCursor { validity, below }))
}
