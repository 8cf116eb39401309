//! Changes of a mailbox since the last sync.
//!
//! One listing returns all folders with their status; only folders whose status has changed are opened. Without
//! modification sequences (CONDSTORE), flags have to be compared, a window of UIDs at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use domain::ConnectorError;
use domain::connector::{ConnectorAccount, Cursors, FolderRole, FolderSnapshot, ListingPage};

use super::client::{
    ChangedSince, ExaminedFolder, FetchItems, ImapError, Refusal, RefusalClass, RefusalKind, SearchCriteria, Step,
    UidSet,
};
use super::cursor::{FolderCursor, read, text};
use super::folders::{FolderMatches, MatchedFolder};
use super::sessions::Session;
use super::translate::{ListedMessage, place, uid_text};

/// Messages in one page.
pub const MAX_PAGE_MESSAGES: usize = 1000;

/// Flag changes in one page; they cost little.
const MAX_PAGE_FLAG_CHANGES: usize = 5000;

/// If more were expunged, a snapshot of the rest is shorter.
const MAX_PAGE_VANISHED: u64 = 5000;

/// Attempts to take a consistent snapshot of a folder that changes meanwhile.
const MAX_SNAPSHOT_ATTEMPTS: usize = 4;

/// UIDs whose flags are hashed together.
const FLAG_WINDOW_UIDS: u32 = 2048;

/// Up to so many messages, each scan covers all windows of a folder; of a larger one, the newest window and one other.
const MAX_FULL_FLAG_SCAN: u32 = 4096;

/// Cursor of the mailbox itself, so that there is one even without folders.
const MAILBOX_CURSOR: (&str, &str) = ("", "1");

/// Returns the next page of changes.
pub async fn changes(
    session: &mut Session,
    account: &ConnectorAccount,
    cursors: &Cursors,
) -> Result<ListingPage, ConnectorError> {
    let FolderMatches { mut folders, missing } = session.folders(account).await?;
    let mut page = ListingPage { is_last: true, ..ListingPage::default() };
    let is_first = cursors.is_empty();
    page.folders
        .extend(folders.iter().filter(|folder| is_first || folder.is_changed).map(|folder| folder.seen.clone()));
    page.missing_folders = missing;
    if is_first {
        page.cursors.insert(MAILBOX_CURSOR.0.to_owned(), MAILBOX_CURSOR.1.to_owned());
    }
    folders.sort_by_key(|folder| folder.seen.role != Some(FolderRole::Inbox));
    for folder in folders.iter().filter(|folder| folder.is_in_scope) {
        if page.seen.len() + page.relisted.len() + page.flags_only.len() >= MAX_PAGE_MESSAGES {
            page.is_last = false;
            break;
        }
        let known = cursors.get(&folder.id);
        let followed = match known {
            None if is_first => start_folder(session, folder).await,
            None => follow_folder(session, folder, FolderCursor::start(0), &mut page).await,
            Some(known) => {
                let cursor: FolderCursor = read(known)?;
                if cursor.is_current(&folder.status) {
                    continue;
                }
                follow_folder(session, folder, cursor, &mut page).await
            }
        };
        let cursor = match followed {
            Ok(FolderProgress { cursor, is_done }) => {
                page.is_last &= is_done;
                text(&cursor)?
            }
            // It was removed since it was listed, or cannot be opened: that does not affect the others.
            Err(ImapError::Refused(refusal)) if is_folder_refusal(&refusal) => continue,
            Err(e) => return Err(e.into()),
        };
        if known != Some(&cursor) {
            page.cursors.insert(folder.id.clone(), cursor);
        }
    }
    Ok(page)
}

/// Returns whether a refusal concerns one folder only: it is gone or cannot be opened.
pub fn is_folder_refusal(refusal: &Refusal) -> bool {
    match refusal.class {
        RefusalClass::NoSuchFolder | RefusalClass::Denied => true,
        // Old servers send a NO without a code.
        RefusalClass::Fault => refusal.kind == RefusalKind::No && refusal.step == Step::Examine,
        RefusalClass::BadCredentials | RefusalClass::Throttled | RefusalClass::Transient => false,
    }
}

/// Starts following a folder at its present state; its messages are listed by [`super::listing`].
async fn start_folder(session: &mut Session, folder: &MatchedFolder) -> Result<FolderProgress, ImapError> {
    let cursor = match FolderCursor::of_status(&folder.status) {
        Some(cursor) => cursor,
        None => {
            let examined = session.examine(&folder.wire).await?;
            let next = uid_next(session, &examined).await?;
            FolderCursor::of_examined(&examined, next)
        }
    };
    Ok(FolderProgress { cursor, is_done: true })
}

/// How far a folder was followed.
struct FolderProgress {
    cursor: FolderCursor,
    is_done: bool,
}

/// Returns the next UID of the folder: messages that arrive meanwhile are left to the next sync.
async fn uid_next(session: &mut Session, examined: &ExaminedFolder) -> Result<u32, ImapError> {
    match examined.uid_next {
        Some(next) => Ok(next.max(1)),
        None => {
            let all = session.client().search(&SearchCriteria::default()).await?;
            Ok(all.last().map_or(1, |last| last.saturating_add(1)))
        }
    }
}

/// Records the changes of one folder, as far as there is room on the page.
async fn follow_folder(
    session: &mut Session,
    folder: &MatchedFolder,
    before: FolderCursor,
    page: &mut ListingPage,
) -> Result<FolderProgress, ImapError> {
    let (examined, changed) = open(session, folder, &before).await?;
    let next = uid_next(session, &examined).await?;
    let mut cursor = restart_if_replaced(before, &examined);
    let validity = cursor.validity;

    let below = cursor.next;
    let NewMessages { found, up_to } = list_new_messages(session, &cursor, next).await?;
    cursor.messages = cursor.messages.saturating_add(u32::try_from(found.len()).unwrap_or(u32::MAX));
    cursor.next = up_to;
    let list = if cursor.is_relisting { &mut page.relisted } else { &mut page.seen };
    list.extend(found.into_iter().map(|found| found.seen(&folder.id, validity)));
    if up_to < next {
        return Ok(FolderProgress { cursor, is_done: false });
    }

    if !record_flag_changes(session, folder, &mut cursor, (below, next), changed, page).await? {
        // Changes after this modification sequence are left to the next round.
        cursor.flags_end_modseq = cursor.flags_end_modseq.or(examined.highest_modseq);
        return Ok(FolderProgress { cursor, is_done: false });
    }
    let modseq = cursor.flags_end_modseq.or(examined.highest_modseq);
    if !record_vanished(session, folder, &cursor, (below, next), &examined, page).await? {
        // The cursor's message count differs from the server's, so the next sync tries again.
        return Ok(FolderProgress { cursor, is_done: true });
    }
    let windows = std::mem::take(&mut cursor.windows);
    let next_window = cursor.flags_done_below.take();
    let has_no_modseq = examined.highest_modseq.is_none();
    let mut cursor = FolderCursor { validity, modseq, ..FolderCursor::of_examined(&examined, next) };
    if has_no_modseq {
        (cursor.windows, cursor.flags_done_below) = (windows, next_window);
    }
    Ok(FolderProgress { cursor, is_done: true })
}

/// Opens the folder; with QRESYNC the server also returns the UIDs of changed messages.
async fn open(
    session: &mut Session,
    folder: &MatchedFolder,
    before: &FolderCursor,
) -> Result<(ExaminedFolder, Option<BTreeSet<u32>>), ImapError> {
    if let (true, Some(modseq), false) = (session.client().has_qresync(), before.modseq, before.is_relisting)
        && before.validity > 0
    {
        session.clear_open_folder();
        let mut changed = BTreeSet::new();
        let resync = session.client().resync(&folder.wire, before.validity, modseq, |found| {
            changed.insert(found.uid);
        });
        let examined = resync.await?;
        session.set_open_folder(&folder.wire, &examined);
        return Ok((examined, Some(changed)));
    }
    Ok((session.examine(&folder.wire).await?, None))
}

/// Resets the cursor if the folder was replaced by another one of the same name, or if its modification sequences went
/// back: then all its messages are listed again, and a snapshot follows. A missing UIDVALIDITY means nothing.
fn restart_if_replaced(before: FolderCursor, examined: &ExaminedFolder) -> FolderCursor {
    let validity = examined.uid_validity.unwrap_or(before.validity);
    // Also if there was no UIDVALIDITY so far: it is a part of our UIDs, so they all change.
    let is_replaced = validity != before.validity && (before.validity > 0 || before.next > 1);
    let goes_back = before.modseq.is_some_and(|before| examined.highest_modseq.is_none_or(|now| now < before));
    let is_relisting = is_replaced || goes_back;
    if is_relisting || before.validity == 0 && before.next <= 1 {
        return FolderCursor { modseq: examined.highest_modseq, is_relisting, ..FolderCursor::start(validity) };
    }
    FolderCursor { validity, ..before }
}

/// Messages that were not reported yet.
struct NewMessages {
    found: Vec<ListedMessage>,
    /// The first UID that is left to the next page.
    up_to: u32,
}

/// Lists the oldest messages that were not reported yet. One that is expunged meanwhile does not affect the others.
async fn list_new_messages(session: &mut Session, cursor: &FolderCursor, next: u32) -> Result<NewMessages, ImapError> {
    if cursor.next >= next {
        return Ok(NewMessages { found: Vec::new(), up_to: next });
    }
    let (mut uids, mut up_to) = (UidSet::range(cursor.next, next - 1), next);
    if uids.len() > MAX_PAGE_MESSAGES as u64 {
        let all = session.client().search(&SearchCriteria { within: Some(uids), ..SearchCriteria::default() }).await?;
        uids = smallest(&all, MAX_PAGE_MESSAGES);
        if uids.len() < all.len() {
            up_to = uids.last().map_or(next, |last| last.saturating_add(1));
        }
    }
    Ok(NewMessages { found: list_metadata(session, &uids, FetchItems::All, None).await?, up_to })
}

/// Fetches metadata in the order of UIDs, each once.
pub async fn list_metadata(
    session: &mut Session,
    uids: &UidSet,
    items: FetchItems,
    since: Option<u64>,
) -> Result<Vec<ListedMessage>, ImapError> {
    if uids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = BTreeMap::new();
    let since = since.map(|modseq| ChangedSince { modseq, vanished: false });
    let fetch = session.client().fetch_metadata(uids, items, since, |metadata| {
        found.insert(metadata.uid, ListedMessage::new(metadata));
    });
    fetch.await?;
    Ok(found.into_values().collect())
}

/// Records flag changes of messages that were reported before. Returns whether it recorded all of them.
async fn record_flag_changes(
    session: &mut Session,
    folder: &MatchedFolder,
    cursor: &mut FolderCursor,
    (below, next): (u32, u32),
    changed: Option<BTreeSet<u32>>,
    page: &mut ListingPage,
) -> Result<bool, ImapError> {
    let Some(modseq) = cursor.modseq else {
        return scan_flags(session, folder, cursor, next, page).await.map(|()| true);
    };
    let from = cursor.flags_done_below.unwrap_or(1);
    if from >= below {
        cursor.flags_done_below = None;
        return Ok(true);
    }
    let reported = UidSet::range(from, below - 1);
    let mut found = match changed {
        Some(changed) => {
            let uids: UidSet =
                changed.into_iter().filter(|uid| reported.contains(*uid)).take(MAX_PAGE_FLAG_CHANGES + 1).collect();
            list_metadata(session, &uids, FetchItems::All, None).await?
        }
        None => list_metadata(session, &reported, FetchItems::All, Some(modseq)).await?,
    };
    let is_all = found.len() <= MAX_PAGE_FLAG_CHANGES;
    found.truncate(MAX_PAGE_FLAG_CHANGES);
    cursor.flags_done_below = found.last().filter(|_| !is_all).map(|last| last.uid.saturating_add(1));
    page.flags_only.extend(found.into_iter().map(|found| found.seen(&folder.id, cursor.validity)));
    Ok(is_all)
}

/// Finds flag changes without modification sequences: reports all messages of windows whose flags have another hash.
async fn scan_flags(
    session: &mut Session,
    folder: &MatchedFolder,
    cursor: &mut FolderCursor,
    next: u32,
    page: &mut ListingPage,
) -> Result<(), ImapError> {
    if next <= 1 {
        cursor.windows.clear();
        return Ok(());
    }
    let all = UidSet::range(1, next - 1);
    let mut scanned = all.clone();
    if cursor.messages > MAX_FULL_FLAG_SCAN {
        let uids = session.client().search(&SearchCriteria { within: Some(all), ..SearchCriteria::default() }).await?;
        let windows: BTreeSet<u32> = uids.iter().map(|uid| uid / FLAG_WINDOW_UIDS).collect();
        let next_window = cursor.flags_done_below.unwrap_or(0);
        let other = windows.range(next_window..).next().or(windows.first()).copied();
        cursor.flags_done_below = other.map(|other| other.saturating_add(1));
        let chosen = windows.last().copied().into_iter().chain(other).map(|at| window_uids(at).intersection(&uids));
        scanned = chosen.fold(UidSet::default(), |chosen, window| chosen.union(&window));
        cursor.windows.retain(|at, _| windows.contains(at));
    }
    let mut hashes: BTreeMap<u32, DefaultHasher> = BTreeMap::new();
    for found in list_metadata(session, &scanned, FetchItems::Flags, None).await? {
        (found.uid, found.flags_text()).hash(hashes.entry(found.uid / FLAG_WINDOW_UIDS).or_default());
    }
    if cursor.messages <= MAX_FULL_FLAG_SCAN {
        cursor.windows.retain(|at, _| hashes.contains_key(at));
    }
    let mut changed_windows = UidSet::default();
    for (at, hash) in hashes {
        let hash = hash.finish() as u32;
        if cursor.windows.insert(at, hash) != Some(hash) {
            changed_windows = changed_windows.union(&window_uids(at));
        }
    }
    let found =
        list_metadata(session, &changed_windows.intersection(&UidSet::range(1, next - 1)), FetchItems::All, None)
            .await?;
    page.flags_only.extend(found.into_iter().map(|found| found.seen(&folder.id, cursor.validity)));
    Ok(())
}

fn window_uids(at: u32) -> UidSet {
    let first = at.saturating_mul(FLAG_WINDOW_UIDS);
    UidSet::range(first.max(1), first.saturating_add(FLAG_WINDOW_UIDS - 1))
}

/// Records expunged messages: as the server lists them (VANISHED), or by a snapshot if there are fewer messages than
/// expected. Returns `false` if no consistent snapshot was possible.
async fn record_vanished(
    session: &mut Session,
    folder: &MatchedFolder,
    cursor: &FolderCursor,
    (below, next): (u32, u32),
    examined: &ExaminedFolder,
    page: &mut ListingPage,
) -> Result<bool, ImapError> {
    let validity = cursor.validity;
    let reported = if below > 1 { UidSet::range(1, below - 1) } else { UidSet::default() };
    let vanished = examined.vanished.intersection(&reported);
    let is_listed = session.client().has_qresync() && !cursor.is_relisting && vanished.len() <= MAX_PAGE_VANISHED;
    if is_listed && cursor.modseq.is_some() {
        page.removed_placements.extend(vanished.iter().map(|uid| place(&folder.id, validity, uid)));
        return Ok(true);
    }
    if !cursor.is_relisting && examined.exists == cursor.messages {
        return Ok(true);
    }
    let Some(left) = list_uids(session, folder, validity).await? else { return Ok(false) };
    let uids = left.iter().take_while(|uid| *uid < next).map(|uid| uid_text(validity, uid)).collect();
    page.folder_snapshots.push(FolderSnapshot { folder: folder.id.clone(), uids });
    Ok(true)
}

/// Returns every UID of a folder, or `None` unless there are as many as the server says: with fewer, mail would be removed.
async fn list_uids(session: &mut Session, folder: &MatchedFolder, validity: u32) -> Result<Option<UidSet>, ImapError> {
    for _ in 0..MAX_SNAPSHOT_ATTEMPTS {
        let examined = session.examine(&folder.wire).await?;
        if examined.uid_validity.is_some_and(|now| now != validity) {
            return Ok(None); // it was replaced meanwhile
        }
        let all = session.client().search(&SearchCriteria::default()).await?;
        if all.len() == u64::from(examined.exists) {
            return Ok(Some(all));
        }
    }
    Ok(None)
}

/// Returns the smallest `count` UIDs.
pub fn smallest(uids: &UidSet, count: usize) -> UidSet {
    uids.iter().take(count).collect()
}

/// Returns the largest `count` UIDs.
pub fn largest(uids: &UidSet, count: usize) -> UidSet {
    uids.iter().rev().take(count).collect()
}
