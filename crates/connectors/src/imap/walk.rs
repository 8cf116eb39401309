//! Everything that is in a mailbox, folder by folder, from the newest message to the oldest.

use domain::ConnectorError;
use domain::connector::{Account, Cursors, FolderRole, Page};
use jiff::{SignedDuration, Timestamp};

use super::changes::{BATCH, is_about_the_folder, last, metadata};
use super::client::{ImapError, Items, Search, UidSet};
use super::cursor::{Standing, Walk, read, text};
use super::folders::{Matched, Ours};
use super::sessions::Session;

/// Folders that are opened for one page.
const MOST_FOLDERS: usize = 50;

/// Servers search by days, each by its own clock.
const A_DAY: SignedDuration = SignedDuration::from_hours(24);

/// What there was before the first sync; folders are known already.
pub async fn history(
    session: &mut Session,
    account: &Account,
    (cursors, told): (&Cursors, &Cursors),
    since: Option<Timestamp>,
) -> Result<Page, ConnectorError> {
    let matched = session.folders(account).await?;
    let begin = Begin { cursors, told: Some(told), leaves_untold: true };
    walk(session, &matched, begin, since, Page::default()).await
}

/// Everything there is, and which folders.
pub async fn list(
    session: &mut Session,
    account: &Account,
    (cursors, told): (&Cursors, Option<&Cursors>),
) -> Result<Page, ConnectorError> {
    let matched = session.folders(account).await?;
    let mut page = Page::default();
    if cursors.is_empty() {
        page.folders = matched.folders.iter().map(|folder| folder.seen.clone()).collect();
        page.gone_folders.clone_from(&matched.gone);
    }
    // What a comparison does not open would count as no more.
    walk(session, &matched, Begin { cursors, told, leaves_untold: false }, None, page).await
}

/// Where a listing goes on, or begins.
#[derive(Clone, Copy)]
struct Begin<'a> {
    cursors: &'a Cursors,
    /// Where the changes stand.
    told: Option<&'a Cursors>,
    /// Folders of which they have told nothing yet are left to them.
    leaves_untold: bool,
}

async fn walk(
    session: &mut Session,
    matched: &Matched,
    begin: Begin<'_>,
    since: Option<Timestamp>,
    mut page: Page,
) -> Result<Page, ConnectorError> {
    let cursors = begin.cursors;
    let mut ahead = plan(matched, begin, &mut page)?;
    ahead.sort_by(|(a, _), (b, _)| order(a).cmp(&order(b)));
    page.is_last = true;
    let mut shut = None;
    let mut opened = 0;
    for (folder, walk) in ahead {
        let left = if opened < MOST_FOLDERS && page.messages.len() < BATCH {
            match step(session, folder, walk, since, &mut page).await {
                Ok(left) => {
                    opened += 1; // those that are shut must not keep us from the others
                    left
                }
                // Removed since it was listed, which the next page sees; or closed to us, perhaps for a while.
                Err(ImapError::Refused(refusal)) if is_about_the_folder(&refusal) => {
                    shut = Some(folder);
                    Some(walk)
                }
                Err(e) => return Err(e.into()),
            }
        } else {
            Some(walk)
        };
        page.is_last &= left.is_none();
        let left = left.map(|walk| text(&walk)).transpose()?.unwrap_or_default();
        if cursors.get(&folder.id) != Some(&left) {
            page.cursors.insert(folder.id.clone(), left);
        }
    }
    if let Some(folder) = shut
        && page.messages.is_empty()
        && page.cursors.is_empty()
    {
        // To say that this was all would be to say that what is in those folders is no more.
        return Err(ConnectorError::Shut(folder.seen.name.clone()));
    }
    Ok(page)
}

/// What is ahead: all folders to begin with, later those that have a cursor.
fn plan<'a>(matched: &'a Matched, begin: Begin<'_>, page: &mut Page) -> Result<Vec<(&'a Ours, Walk)>, ConnectorError> {
    if begin.cursors.is_empty() {
        let wanted = matched.folders.iter().filter(|folder| folder.is_in_scope);
        return wanted.filter_map(|folder| from_the_top(folder, begin).transpose()).collect();
    }
    let mut ahead = Vec::new();
    for (id, cursor) in begin.cursors {
        match matched.find(id) {
            Some(folder) => ahead.push((folder, read(cursor)?)),
            None => drop(page.cursors.insert(id.clone(), String::new())),
        }
    }
    Ok(ahead)
}

/// Where a folder's listing begins. Nothing where all of it is still to be told as changes.
fn from_the_top<'a>(folder: &'a Ours, begin: Begin<'_>) -> Result<Option<(&'a Ours, Walk)>, ConnectorError> {
    let validity = folder.status.uid_validity.unwrap_or(0);
    let standing = begin.told.and_then(|told| told.get(&folder.id)).map(|cursor| read(cursor)).transpose()?;
    let below = match standing {
        Some(Standing { validity: known, next, .. }) if known == validity => next,
        None if begin.leaves_untold => return Ok(None),
        _ => u32::MAX,
    };
    Ok(Some((folder, Walk { validity, below })))
}

/// The inbox is what people look at first.
fn order(folder: &Ours) -> (bool, &str) {
    (folder.seen.role != Some(FolderRole::Inbox), &folder.seen.name)
}

/// The next messages of a folder; where it stands then, or nothing when that was all.
async fn step(
    session: &mut Session,
    folder: &Ours,
    walk: Walk,
    since: Option<Timestamp>,
    page: &mut Page,
) -> Result<Option<Walk>, ImapError> {
    let examined = session.examine(&folder.wire).await?;
    let validity = examined.uid_validity.unwrap_or(walk.validity);
    // Another folder under the same name is listed from its own top.
    let below = if validity == walk.validity { walk.below } else { examined.uid_next.unwrap_or(u32::MAX) };
    if below <= 1 || examined.exists == 0 {
        return Ok(None);
    }
    let day =
        since.and_then(|since| since.checked_sub(A_DAY).ok()).map(|time| time.to_zoned(jiff::tz::TimeZone::UTC).date());
    let search = Search { since: day, within: Some(UidSet::range(1, below - 1)) };
    let uids = session.client().search(&search).await?;
    let these = last(&uids, BATCH.saturating_sub(page.messages.len()).max(1));
    let found = metadata(session, &these, Items::All, None).await?;
    let is_wanted = |received_at: Option<Timestamp>| received_at.is_none() || received_at >= since;
    let found = found.into_iter().rev().filter(|found| is_wanted(found.received_at));
    page.messages.extend(found.map(|found| found.seen(&folder.id, validity)));
    let is_all = these.len() == uids.len();
    Ok(these.first().filter(|_| !is_all).map(|below| Walk { validity, below }))
}
