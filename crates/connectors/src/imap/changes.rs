//! What has changed in a mailbox since the last look.
//!
//! One call lists the folders with their numbers; only those are opened whose numbers say that something happened. Where a
//! server has no modification numbers, flags have to be looked at, a window of UIDs at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use domain::ConnectorError;
use domain::connector::{Account, Cursors, FolderRole, Page, Present};

use super::client::{ChangedSince, Class, Examined, ImapError, Items, Kind, Metadata, Refusal, Search, Step, UidSet};
use super::cursor::{Standing, read, text};
use super::folders::{Matched, Ours};
use super::sessions::Session;
use super::translate::{Found, place, uid_text};

/// Messages of one page.
pub const BATCH: usize = 1000;

/// Changes of flags in one page; they cost little.
const MOST_CHANGES: usize = 5000;

/// If more have vanished, it is shorter to say what is left.
const MOST_VANISHED: u64 = 5000;

/// How often a folder is looked at in which mail comes and goes, until its numbers fit.
const LOOKS: usize = 4;

/// UIDs whose flags are looked at and remembered together.
const WINDOW: u32 = 2048;

/// Up to so many messages all windows of a folder are looked at each time; of more, the newest and one other.
const FEW: u32 = 4096;

/// The cursor of the mailbox itself, so that there is one even without any folder.
const BEGUN: (&str, &str) = ("", "1");

pub async fn changes(session: &mut Session, account: &Account, cursors: &Cursors) -> Result<Page, ConnectorError> {
    let Matched { mut folders, gone } = session.folders(account).await?;
    let mut page = Page { is_last: true, ..Page::default() };
    let is_first = cursors.is_empty();
    page.folders.extend(folders.iter().filter(|folder| is_first || folder.is_news).map(|folder| folder.seen.clone()));
    for id in gone {
        page.cursors.insert(id.clone(), String::new());
        page.gone_folders.push(id);
    }
    if is_first {
        page.cursors.insert(BEGUN.0.to_owned(), BEGUN.1.to_owned());
    }
    folders.sort_by_key(|folder| folder.seen.role != Some(FolderRole::Inbox));
    for folder in folders.iter().filter(|folder| folder.is_in_scope) {
        if page.messages.len() + page.again.len() + page.marked.len() >= BATCH {
            page.is_last = false;
            break;
        }
        let known = cursors.get(&folder.id);
        let followed = match known {
            None if is_first => begin(session, folder).await,
            None => follow(session, folder, Standing::nothing(0), &mut page).await,
            Some(known) => {
                let standing: Standing = read(known)?;
                if standing.is_as_in(&folder.status) {
                    continue;
                }
                follow(session, folder, standing, &mut page).await
            }
        };
        let standing = match followed {
            Ok(Followed { standing, is_done }) => {
                page.is_last &= is_done;
                text(&standing)?
            }
            // Removed since it was listed, or closed to us: the others are as they are.
            Err(ImapError::Refused(refusal)) if is_about_the_folder(&refusal) => continue,
            Err(e) => return Err(e.into()),
        };
        if known != Some(&standing) {
            page.cursors.insert(folder.id.clone(), standing);
        }
    }
    Ok(page)
}

/// It is gone, or cannot be opened; the others are as they are.
pub fn is_about_the_folder(refusal: &Refusal) -> bool {
    match refusal.class {
        Class::NoSuchFolder | Class::Denied => true,
        // Old servers say no more than NO.
        Class::Fault => refusal.kind == Kind::No && refusal.step == Step::Examine,
        Class::BadCredentials | Class::Throttled | Class::Transient => false,
    }
}

/// From now on; what is there already comes by another way.
async fn begin(session: &mut Session, folder: &Ours) -> Result<Followed, ImapError> {
    let standing = match Standing::of_status(&folder.status) {
        Some(standing) => standing,
        None => {
            let examined = session.examine(&folder.wire).await?;
            let next = ceiling(session, &examined).await?;
            Standing::of_examined(&examined, next)
        }
    };
    Ok(Followed { standing, is_done: true })
}

struct Followed {
    standing: Standing,
    is_done: bool,
}

/// The first UID that is not there yet: whatever comes meanwhile is for the next pass.
async fn ceiling(session: &mut Session, examined: &Examined) -> Result<u32, ImapError> {
    match examined.uid_next {
        Some(next) => Ok(next.max(1)),
        None => {
            let all = session.client().search(&Search::default()).await?;
            Ok(all.last().map_or(1, |last| last.saturating_add(1)))
        }
    }
}

/// Tells what has happened in one folder, as far as there is room on the page.
async fn follow(
    session: &mut Session,
    folder: &Ours,
    before: Standing,
    page: &mut Page,
) -> Result<Followed, ImapError> {
    let (examined, changed) = open(session, folder, &before).await?;
    let next = ceiling(session, &examined).await?;
    let mut standing = anew_if_needed(before, &examined);
    let validity = standing.validity;

    let below = standing.next;
    let Arrived { found, up_to } = arrived(session, &standing, next).await?;
    standing.messages = standing.messages.saturating_add(u32::try_from(found.len()).unwrap_or(u32::MAX));
    standing.next = up_to;
    let told = if standing.is_anew { &mut page.again } else { &mut page.messages };
    told.extend(found.into_iter().map(|found| found.seen(&folder.id, validity)));
    if up_to < next {
        return Ok(Followed { standing, is_done: false });
    }

    let told = tell_flags(session, folder, &mut standing, (below, next), changed, page).await?;
    if !told {
        // What changes from here on, behind what is told, counts as not told.
        standing.ends_at = standing.ends_at.or(examined.highest_modseq);
        return Ok(Followed { standing, is_done: false });
    }
    let modseq = standing.ends_at.or(examined.highest_modseq);
    if !tell_vanished(session, folder, &standing, (below, next), &examined, page).await? {
        // The count that it stands at is not the server's, so the next look tries again.
        return Ok(Followed { standing, is_done: true });
    }
    let windows = std::mem::take(&mut standing.windows);
    let turn = standing.told_below.take();
    let is_plain = examined.highest_modseq.is_none();
    let mut standing = Standing { validity, modseq, ..Standing::of_examined(&examined, next) };
    if is_plain {
        (standing.windows, standing.told_below) = (windows, turn);
    }
    Ok(Followed { standing, is_done: true })
}

/// Opens the folder; with QRESYNC the server says at once whose flags have changed.
async fn open(
    session: &mut Session,
    folder: &Ours,
    before: &Standing,
) -> Result<(Examined, Option<BTreeSet<u32>>), ImapError> {
    if let (true, Some(modseq), false) = (session.client().has_qresync(), before.modseq, before.is_anew)
        && before.validity > 0
    {
        session.forget_open();
        let mut changed = BTreeSet::new();
        let collect = |found: &Metadata<'_>| {
            changed.insert(found.uid);
        };
        let examined = session.client().resync(&folder.wire, before.validity, modseq, collect).await?;
        session.remember_open(&folder.wire, &examined);
        return Ok((examined, Some(changed)));
    }
    Ok((session.examine(&folder.wire).await?, None))
}

/// Another folder under the same name, or one whose modification numbers do not hold any more: all of it is told, and then
/// what is left of what we have. A number that is missing says nothing.
fn anew_if_needed(before: Standing, examined: &Examined) -> Standing {
    let validity = examined.uid_validity.unwrap_or(before.validity);
    // Also when there was no number so far: then everything is called by one now.
    let is_another = validity != before.validity && (before.validity > 0 || before.next > 1);
    let goes_back = before.modseq.is_some_and(|before| examined.highest_modseq.is_none_or(|now| now < before));
    let is_anew = is_another || goes_back;
    if is_anew || before.validity == 0 && before.next <= 1 {
        return Standing { modseq: examined.highest_modseq, is_anew, ..Standing::nothing(validity) };
    }
    Standing { validity, ..before }
}

struct Arrived {
    found: Vec<Found>,
    /// The first UID that was not asked for.
    up_to: u32,
}

/// The oldest of those that are not told yet. One that goes meanwhile does not make them all.
async fn arrived(session: &mut Session, standing: &Standing, next: u32) -> Result<Arrived, ImapError> {
    if standing.next >= next {
        return Ok(Arrived { found: Vec::new(), up_to: next });
    }
    let (mut uids, mut up_to) = (UidSet::range(standing.next, next - 1), next);
    if uids.len() > BATCH as u64 {
        let all = session.client().search(&Search { within: Some(uids), ..Search::default() }).await?;
        uids = first(&all, BATCH);
        if uids.len() < all.len() {
            up_to = uids.last().map_or(next, |last| last.saturating_add(1));
        }
    }
    Ok(Arrived { found: metadata(session, &uids, Items::All, None).await?, up_to })
}

/// By UID, each once.
pub async fn metadata(
    session: &mut Session,
    uids: &UidSet,
    items: Items,
    since: Option<u64>,
) -> Result<Vec<Found>, ImapError> {
    if uids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = BTreeMap::new();
    let since = since.map(|modseq| ChangedSince { modseq, vanished: false });
    let each = |metadata: &Metadata<'_>| {
        found.insert(metadata.uid, Found::new(metadata));
    };
    session.client().fetch_metadata(uids, items, since, each).await?;
    Ok(found.into_values().collect())
}

/// Flags of what was told before; whether all of it is told now.
async fn tell_flags(
    session: &mut Session,
    folder: &Ours,
    standing: &mut Standing,
    (below, next): (u32, u32),
    changed: Option<BTreeSet<u32>>,
    page: &mut Page,
) -> Result<bool, ImapError> {
    let Some(modseq) = standing.modseq else {
        return look_at_flags(session, folder, standing, next, page).await.map(|()| true);
    };
    let from = standing.told_below.unwrap_or(1);
    if from >= below {
        standing.told_below = None;
        return Ok(true);
    }
    let told = UidSet::range(from, below - 1);
    let mut found = match changed {
        Some(changed) => {
            let uids: UidSet = changed.into_iter().filter(|uid| told.contains(*uid)).take(MOST_CHANGES + 1).collect();
            metadata(session, &uids, Items::All, None).await?
        }
        None => metadata(session, &told, Items::All, Some(modseq)).await?,
    };
    let is_all = found.len() <= MOST_CHANGES;
    found.truncate(MOST_CHANGES);
    standing.told_below = found.last().filter(|_| !is_all).map(|last| last.uid.saturating_add(1));
    page.marked.extend(found.into_iter().map(|found| found.seen(&folder.id, standing.validity)));
    Ok(is_all)
}

/// Without modification numbers: windows whose flags are not what they were are told whole.
async fn look_at_flags(
    session: &mut Session,
    folder: &Ours,
    standing: &mut Standing,
    next: u32,
    page: &mut Page,
) -> Result<(), ImapError> {
    if next <= 1 {
        standing.windows.clear();
        return Ok(());
    }
    let all = UidSet::range(1, next - 1);
    let mut looked_at = all.clone();
    if standing.messages > FEW {
        let uids = session.client().search(&Search { within: Some(all), ..Search::default() }).await?;
        let windows: BTreeSet<u32> = uids.iter().map(|uid| uid / WINDOW).collect();
        let turn = standing.told_below.unwrap_or(0);
        let other = windows.range(turn..).next().or(windows.first()).copied();
        standing.told_below = other.map(|other| other.saturating_add(1));
        let chosen = windows.last().copied().into_iter().chain(other).map(|at| in_window(at).intersection(&uids));
        looked_at = chosen.fold(UidSet::default(), |chosen, window| chosen.union(&window));
        standing.windows.retain(|at, _| windows.contains(at));
    }
    let mut hashes: BTreeMap<u32, DefaultHasher> = BTreeMap::new();
    for found in metadata(session, &looked_at, Items::Flags, None).await? {
        (found.uid, found.flags_text()).hash(hashes.entry(found.uid / WINDOW).or_default());
    }
    if standing.messages <= FEW {
        standing.windows.retain(|at, _| hashes.contains_key(at));
    }
    let mut differ = UidSet::default();
    for (at, hash) in hashes {
        let hash = hash.finish() as u32;
        if standing.windows.insert(at, hash) != Some(hash) {
            differ = differ.union(&in_window(at));
        }
    }
    let found = metadata(session, &differ.intersection(&UidSet::range(1, next - 1)), Items::All, None).await?;
    page.marked.extend(found.into_iter().map(|found| found.seen(&folder.id, standing.validity)));
    Ok(())
}

fn in_window(at: u32) -> UidSet {
    let first = at.saturating_mul(WINDOW);
    UidSet::range(first.max(1), first.saturating_add(WINDOW - 1))
}

/// What is no more: as the server tells it, or, when there are fewer than there should be, by what is left. Whether that
/// could be told.
async fn tell_vanished(
    session: &mut Session,
    folder: &Ours,
    standing: &Standing,
    (below, next): (u32, u32),
    examined: &Examined,
    page: &mut Page,
) -> Result<bool, ImapError> {
    let validity = standing.validity;
    let told = if below > 1 { UidSet::range(1, below - 1) } else { UidSet::default() };
    let vanished = examined.vanished.intersection(&told);
    let is_told = session.client().has_qresync() && !standing.is_anew && vanished.len() <= MOST_VANISHED;
    if is_told && standing.modseq.is_some() {
        page.vanished.extend(vanished.iter().map(|uid| place(&folder.id, validity, uid)));
        return Ok(true);
    }
    if !standing.is_anew && examined.exists == standing.messages {
        return Ok(true);
    }
    let Some(left) = all_of(session, folder, validity).await? else { return Ok(false) };
    let uids = left.iter().take_while(|uid| *uid < next).map(|uid| uid_text(validity, uid)).collect();
    page.present.push(Present { folder: folder.id.clone(), uids });
    Ok(true)
}

/// Every UID of a folder. As many as the server says there are, or nothing: a short answer would make mail disappear.
async fn all_of(session: &mut Session, folder: &Ours, validity: u32) -> Result<Option<UidSet>, ImapError> {
    for _ in 0..LOOKS {
        let examined = session.examine(&folder.wire).await?;
        if examined.uid_validity.is_some_and(|now| now != validity) {
            return Ok(None); // made anew while it was looked at
        }
        let all = session.client().search(&Search::default()).await?;
        if all.len() == u64::from(examined.exists) {
            return Ok(Some(all));
        }
    }
    Ok(None)
}

/// The smallest so many.
pub fn first(uids: &UidSet, most: usize) -> UidSet {
    uids.iter().take(most).collect()
}

/// The largest so many.
pub fn last(uids: &UidSet, most: usize) -> UidSet {
    uids.iter().rev().take(most).collect()
}
