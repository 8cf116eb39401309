//! What has changed. Graph tells it folder by folder, which is many calls for nothing; so one call asks for whatever was
//! touched in the whole mailbox, and only the folders where something was are followed. What is gone for good shows in no
//! list: once a day, and whenever somebody says that something went, all folders are followed.
//!
//! A message is in one folder. Whatever is told of it was just read, so it is told whole, and what is said last holds.

mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::connector::{Cursors, Page, Place, Present, Seen, SeenFolder};
use domain::{Clock, ConnectorError, FolderRole, SystemClock};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::api::{Call, Refusal};
use super::batch;
use super::delta::{self, At, Told};
use super::folders::{self, Tree};
use super::lanes::AT_ONCE;
use super::message::{FIELDS, Message};
use super::refusal::What;
use crate::folders::compare;
use crate::http::protocol;

/// The cursor of the mailbox itself; the others are those of its folders.
const SCOPE: &str = "";

/// All folders are followed at least so often.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(24);

/// So often the folders themselves are looked at: names change, and whole folders move.
const LOOK_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// Their clock may be so far behind ours. At worst what was touched meanwhile is told once more.
const SKEW: SignedDuration = SignedDuration::from_mins(10);

/// A round that takes longer is followed by another look at once.
const LONG: SignedDuration = SignedDuration::from_secs(60);

/// A page is recorded when it has so many messages, or took so many calls.
const ENOUGH: usize = 400;
const MOST_CALLS: usize = 20;

/// Messages of a page of changes: each that has left its folder is a call of its own.
const PAGE: usize = 200;

/// A folder that fails alone so often, for a minute, is left to the probe for an hour.
const MOST_FAILURES: u32 = 7;

/// A folder with more in it is compared with all the others when Graph has forgotten it.
const MOST_ANEW: usize = 1_000;

/// Where the mailbox stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Round {
    /// When the first one began. Mail from before is told by lists.
    begun_at: Timestamp,
    /// Folders that are still to be followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<String>,
    /// When this round through all of them began, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sweep: Option<Timestamp>,
    /// When the last one that has ended began. Nothing: it is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    swept_at: Option<Timestamp>,
    /// The last time that something may have gone, by whoever says so, of which a round knew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<Timestamp>,
    /// Folders that have no mail of anybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    apart: Vec<String>,
    /// From when on what was touched is asked for, and what that came to the last time.
    touched: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    as_before: Option<u64>,
    /// When this round began.
    #[serde(default)]
    round_at: Timestamp,
    /// When the folders themselves were looked at.
    #[serde(default)]
    looked_at: Timestamp,
    /// How often the only folder that is left has failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    failures: u32,
    /// Graph has asked us to wait, when some of a page was read already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
}

impl Round {
    fn is_first(&self) -> bool {
        self.swept_at.is_none()
    }

    fn is_sweep_due(&self, now: Timestamp, sweep_since: Option<Timestamp>) -> bool {
        self.swept_at.is_none_or(|swept| now.duration_since(swept) >= SWEEP_EVERY || sweep_since > self.answered)
    }

    fn is_look_due(&self, now: Timestamp) -> bool {
        now.duration_since(self.looked_at) >= LOOK_EVERY
    }
}

/// Since when changes are told: what was received since is left to them.
pub fn begun_at(cursors: &Cursors) -> Result<Timestamp, ConnectorError> {
    let round = cursors.get(SCOPE).and_then(|text| serde_json::from_str::<Round>(text).ok());
    round.map(|round| round.begun_at).ok_or(ConnectorError::CursorExpired)
}

pub async fn page(call: Call<'_>, cursors: &Cursors) -> Result<Page, ConnectorError> {
    let now = SystemClock.now();
    let round = match cursors.get(SCOPE) {
        Some(text) => serde_json::from_str(text).map_err(|_| ConnectorError::CursorExpired)?,
        // Graph tells times to the second.
        None => Round { begun_at: whole_second(now), touched: now - SKEW, ..Round::default() },
    };
    let mut walk = Walk {
        call,
        cursors,
        round,
        page: Page::default(),
        told: BTreeMap::new(),
        doubted: BTreeSet::new(),
        is_anew: false,
        is_probe_due: false,
    };
    if let Some(wait) =
        walk.round.not_before.take().and_then(|until| Duration::try_from(until.duration_since(now)).ok())
        && !wait.is_zero()
    {
        return Err(ConnectorError::Throttled { retry_after: Some(wait) });
    }
    let is_resumed = !walk.round.left.is_empty();
    if !is_resumed {
        walk.begin().await?;
        if !walk.round.left.is_empty() {
            walk.round.round_at = now;
        }
    }
    // What happened since a round began that took long, the next one tells. After the first, it is also known which folders
    // are wanted.
    let is_long = is_resumed && now.duration_since(walk.round.round_at) >= LONG;
    let is_enough = !is_long && !walk.round.is_first();
    let is_whole = walk.follow().await?;
    let Walk { round, mut page, told, is_probe_due, .. } = walk;
    for Present { folder, uids } in &mut page.present {
        // It was read elsewhere that these are in it since.
        let there = told.values().flatten().filter(|seen| seen.place.folder == *folder);
        uids.extend(there.map(|seen| seen.place.uid.clone()));
    }
    page.whole = told.keys().cloned().collect();
    page.again = told.into_values().flatten().collect();
    page.is_last = is_enough && is_whole && !is_probe_due && round.left.is_empty();
    let text = serde_json::to_string(&round).map_err(|_| protocol("a place that cannot be written down"))?;
    if cursors.get(SCOPE) != Some(&text) {
        page.cursors.insert(SCOPE.to_owned(), text);
    }
    Ok(page)
}

struct Walk<'a> {
    call: Call<'a>,
    cursors: &'a Cursors,
    round: Round,
    page: Page,
    /// Messages as they were last read; nothing: it is nowhere, as far as we know.
    told: BTreeMap<String, Option<Seen>>,
    /// Those of which two things were told.
    doubted: BTreeSet<String>,
    /// Graph has forgotten a folder already.
    is_anew: bool,
    /// Of a folder the probe alone tells, from now on.
    is_probe_due: bool,
}

/// How long whoever was refused is to wait.
fn waits(refusal: Option<&Refusal>) -> Option<Duration> {
    match refusal.map(|refusal| &refusal.error) {
        Some(ConnectorError::Throttled { retry_after }) => *retry_after,
        _ => None,
    }
}

impl Walk<'_> {
    /// Which folders are to be followed.
    async fn begin(&mut self) -> Result<(), ConnectorError> {
        let now = SystemClock.now();
        // Of a folder that is stuck nobody tells what has gone.
        let is_stuck = || self.cursors.values().any(|at| At::read(at) == Some(At::Stuck));
        let is_look_due = self.round.is_look_due(now);
        if self.round.is_sweep_due(now, self.call.account.sweep_since) || (is_look_due && is_stuck()) {
            self.round.sweep = Some(now);
            self.round.answered = self.call.account.sweep_since;
            self.round.left = self.look_at_folders().await?;
            return Ok(());
        }
        if is_look_due {
            self.look_at_folders().await?;
        }
        self.probe().await
    }

    /// The folders as they are; those that are to be followed.
    async fn look_at_folders(&mut self) -> Result<Vec<String>, ConnectorError> {
        let known = &self.call.account.folders;
        let Tree { folders: now, apart } = folders::tree(self.call).await?;
        self.round.apart = apart;
        self.round.looked_at = SystemClock.now();
        // Those that are usually left out are followed once we know that they are wanted.
        let is_usual =
            |role| !matches!(role, Some(FolderRole::Drafts | FolderRole::Spam | FolderRole::Trash | FolderRole::Chats));
        let is_wanted = |folder: &&SeenFolder| match known.iter().find(|known| known.id == folder.id) {
            Some(known) => known.is_in_scope,
            None => is_usual(folder.role),
        };
        let wanted = now.iter().filter(is_wanted).map(|folder| folder.id.clone()).collect();
        let is_first = self.cursors.is_empty();
        let (changed, gone) = compare(if is_first { &[] } else { known }, now);
        self.page.folders = changed;
        let forgotten = self.cursors.keys().filter(|scope| !scope.is_empty() && gone.contains(scope));
        self.page.cursors.extend(forgotten.map(|scope| (scope.clone(), String::new())));
        self.page.gone_folders = gone;
        Ok(wanted)
    }

    /// Those that mail is taken in from since a while ago.
    fn unfollowed(&self) -> Vec<String> {
        let is_gone = |folder: &String| self.page.gone_folders.contains(folder);
        self.in_scope().into_iter().filter(|folder| !self.cursors.contains_key(folder) && !is_gone(folder)).collect()
    }

    fn in_scope(&self) -> Vec<String> {
        let known = &self.call.account.folders;
        let wanted = known.iter().filter(|known| known.is_in_scope).map(|known| &known.id);
        // Those that were told only a page ago.
        let is_new = |scope: &&String| !scope.is_empty() && known.iter().all(|known| known.id != **scope);
        wanted.chain(self.cursors.keys().filter(is_new)).cloned().collect()
    }

    /// Whether it was told, perhaps on an earlier page, or is none of those that are.
    fn is_known(&self, folder: &str) -> bool {
        self.call.account.folders.iter().any(|known| known.id == folder)
            || self.cursors.contains_key(folder)
            || self.page.folders.iter().any(|told| told.id == folder)
            || self.round.left.iter().any(|left| left == folder)
            || self.round.apart.iter().any(|apart| apart == folder)
    }

    fn tell_touched(&mut self, touched: Vec<Message>) -> Result<(), ConnectorError> {
        for message in touched {
            if let Some(folder) = message.parent_folder_id.clone() {
                self.tell(&message, &folder)?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, message: &Message, folder: &str) -> Result<(), ConnectorError> {
        let seen = message.seen(folder)?;
        // One that no tree shows is none of those that have mail.
        let has_mail = self.is_known(folder) && !self.round.apart.iter().any(|apart| apart == folder);
        let id = seen.message.clone();
        let seen = Some(seen).filter(|_| has_mail);
        let place = |seen: &Option<Seen>| seen.as_ref().map(|seen| seen.place.clone());
        if self.told.get(&id).is_some_and(|told| place(told) != place(&seen)) {
            self.doubted.insert(id.clone());
        }
        self.told.insert(id, seen);
        Ok(())
    }

    /// As far as there is room on the page; whether nothing was in the way.
    async fn follow(&mut self) -> Result<bool, ConnectorError> {
        let mut ats: BTreeMap<String, At> = BTreeMap::new();
        let (mut is_whole, mut has_failed, mut calls) = (true, false, 0);
        while is_whole && calls < MOST_CALLS && self.told.len() < ENOUGH && !self.round.left.is_empty() {
            let at = |folder: &String| {
                let before = || self.cursors.get(folder).and_then(|text| At::read(text));
                ats.get(folder).cloned().or_else(before)
            };
            // Only the first round is long. Later on what is read last is to be true, so there is an order.
            let at_once = if self.round.is_first() { AT_ONCE } else { 1 };
            let next: Vec<_> =
                self.round.left.iter().take(at_once).map(|folder| (folder.clone(), at(folder))).collect();
            let asked = join_all(next.iter().map(|(folder, at)| self.ask(folder, at.as_ref()))).await;
            calls += next.len();
            let longest = asked.iter().flatten().filter_map(|asked| waits(asked.as_ref().err())).max();
            for ((folder, at), answer) in next.into_iter().zip(asked) {
                let is_broken = matches!(&answer, Some(Err(refusal)) if refusal.is_of_a_broken_server());
                let is_alone = self.round.left.iter().all(|left| *left == folder);
                let step = match self.step(&folder, at, answer).await {
                    // It alone fails, again and again: no other mail is to wait for it.
                    Err(ConnectorError::Unavailable(why)) if is_alone && is_broken => {
                        self.round.failures += 1;
                        if self.round.failures < MOST_FAILURES {
                            // None at first, then longer each time.
                            let wait = Duration::from_secs((1 << (self.round.failures - 1)) - 1);
                            self.round.not_before = SystemClock.now().checked_add(wait).ok();
                            is_whole = false;
                            break;
                        }
                        Some(self.stuck(&why))
                    }
                    // The others go first; if the next one fails as well, it is not the folder.
                    Err(ConnectorError::Unavailable(_)) if !is_alone && !has_failed => {
                        has_failed = true;
                        self.round.left.retain(|left| *left != folder);
                        self.round.left.push(folder);
                        continue;
                    }
                    // What was read so far holds, so that it is not read for ever.
                    Err(e) if !(ats.is_empty() && self.told.is_empty()) && self.is_put_off(&e, longest) => {
                        is_whole = false;
                        break;
                    }
                    step => step?,
                };
                if !matches!(step, Some(At::Next(_))) {
                    self.round.left.retain(|left| *left != folder);
                    self.round.failures = 0;
                }
                match step {
                    Some(at) => drop(ats.insert(folder, at)),
                    // It is no more.
                    None => drop(self.page.cursors.insert(folder, String::new())),
                }
            }
        }
        self.settle_doubts().await?;
        ats.retain(|folder, _| !self.page.gone_folders.contains(folder));
        self.page.cursors.extend(ats.into_iter().map(|(folder, at)| (folder, at.text())));
        if self.round.left.is_empty()
            && let Some(sweep) = self.round.sweep.take()
        {
            self.round.swept_at = Some(sweep);
        }
        Ok(is_whole)
    }

    /// It may work later; not before it was said to.
    fn is_put_off(&mut self, e: &ConnectorError, longest: Option<Duration>) -> bool {
        match e {
            ConnectorError::Throttled { retry_after } => {
                let wait = longest.max(*retry_after);
                self.round.not_before = wait.and_then(|wait| SystemClock.now().checked_add(wait).ok());
                true
            }
            e => matches!(e, ConnectorError::NotYet(_) | ConnectorError::Unavailable(_)),
        }
    }

    /// What was told of two folders that were read at the same time is read once more.
    async fn settle_doubts(&mut self) -> Result<(), ConnectorError> {
        let doubted = std::mem::take(&mut self.doubted);
        self.tell_where(doubted.into_iter().collect(), None).await
    }

    /// The next page of a folder's changes. `None`: there is nothing to ask for.
    async fn ask(&self, folder: &str, at: Option<&At>) -> Option<Result<Told, Refusal>> {
        let url = match at {
            Some(At::Stuck) => return None,
            Some(At::Next(link) | At::Delta(link)) => self.call.link(link).ok()?,
            None => delta::beginning(self.call, folder),
        };
        let size = if self.round.is_first() { delta::PAGE } else { PAGE };
        Some(delta::page(self.call, url, size).await)
    }

    /// What it says; where the folder goes on. `None`: it is no more.
    async fn step(
        &mut self,
        folder: &str,
        at: Option<At>,
        answer: Option<Result<Told, Refusal>>,
    ) -> Result<Option<At>, ConnectorError> {
        let Some(answer) = answer else {
            return match at {
                // Where Graph does not tell, the probe does, and what is gone shows when it tells again.
                Some(At::Stuck) if self.round.sweep.is_none() => Ok(Some(At::Stuck)),
                Some(At::Stuck) => self.unstick(folder).await,
                // Graph was elsewhere then.
                _ => self.forgotten(folder, None).await,
            };
        };
        match answer {
            Ok(Told { messages, at: next }) => {
                if at.is_none() && !self.round.is_first() && matches!(next, At::Delta(_)) {
                    self.tell_present(folder, &messages)?;
                } else {
                    self.tell_changed(folder, messages).await?;
                }
                Ok(Some(next))
            }
            Err(refusal) => match refusal.error {
                // Whether it is no more, the tree says.
                ConnectorError::Gone => match self.look_at_folders().await?.iter().any(|there| there == folder) {
                    true => Ok(Some(self.stuck("it is there and cannot be found"))),
                    false => Ok(None),
                },
                ConnectorError::CursorExpired if at.is_none() && !self.round.is_first() => {
                    Ok(Some(self.stuck("it is forgotten before it is told")))
                }
                ConnectorError::CursorExpired => self.forgotten(folder, refusal.location).await,
                // What is wrong may be our link.
                ConnectorError::Protocol(_) if refusal.status.is_some() && at.is_some() => self.unstick(folder).await,
                ConnectorError::Protocol(why) if refusal.status.is_some() => Ok(Some(self.stuck(&why))),
                e => Err(e),
            },
        }
    }

    fn stuck(&mut self, why: &str) -> At {
        self.is_probe_due = true;
        tracing::warn!(mailbox.id = %self.call.account.mailbox, "Graph does not tell what changes in a folder: {why}");
        At::Stuck
    }

    /// Graph does not know any more what it has told of a folder. Once is enough: whoever forgets all the time is asked
    /// again later.
    async fn forgotten(&mut self, folder: &str, location: Option<String>) -> Result<Option<At>, ConnectorError> {
        let is_again = std::mem::replace(&mut self.is_anew, true);
        match (self.round.is_first(), is_again) {
            // Nothing of it was told yet but what has come since.
            (true, false) => Ok(Some(At::Next(delta::beginning(self.call, folder).into()))),
            // A list tells what is in it.
            (true, true) => Ok(Some(self.stuck("it is forgotten all the time"))),
            (false, false) => self.anew(folder, location).await.map(Some),
            (false, true) => Err(delta::forgets()),
        }
    }

    async fn unstick(&mut self, folder: &str) -> Result<Option<At>, ConnectorError> {
        match self.anew(folder, None).await {
            Err(ConnectorError::Protocol(why)) => Ok(Some(self.stuck(&why))),
            Err(ConnectorError::Gone) => Ok(None),
            Err(ConnectorError::CursorExpired) if self.round.is_first() => {
                Ok(Some(self.stuck("there is too much in it to read it at once")))
            }
            at => at.map(Some),
        }
    }

    async fn tell_changed(&mut self, folder: &str, messages: Vec<Message>) -> Result<(), ConnectorError> {
        // The last word on each holds.
        let latest: BTreeMap<String, Message> =
            messages.into_iter().map(|message| (message.id.clone(), message)).collect();
        let mut removed = Vec::new();
        for (id, message) in latest {
            if message.removed.is_some() {
                removed.push(id);
            } else if !self.round.is_first() || message.received_date_time >= Some(self.round.begun_at) {
                self.tell(&message, folder)?;
            }
        }
        // Deleted, or moved elsewhere.
        self.tell_where(removed, Some(folder)).await
    }

    /// Messages as they are now, wherever that is; not in this folder.
    async fn tell_where(&mut self, ids: Vec<String>, not_in: Option<&str>) -> Result<(), ConnectorError> {
        let urls = ids.iter().map(|id| {
            let mut url = self.call.url(&["messages", id]);
            url.query_pairs_mut().append_pair("$select", FIELDS);
            url
        });
        let found = batch::get::<Message>(self.call, What::Message, urls.collect()).await?;
        for (id, found) in ids.into_iter().zip(found) {
            match found {
                Ok(message) => {
                    let now = message.parent_folder_id.clone().ok_or_else(|| protocol("a message in no folder"))?;
                    if !self.is_known(&now) {
                        self.look_at_folders().await?;
                    }
                    self.told.remove(&id);
                    self.tell(&Message { id, ..message }, &now)?;
                }
                Err(ConnectorError::Gone) => drop(self.told.insert(id, None)),
                // Wherever it is, it is not there, and its folder tells of it.
                Err(ConnectorError::Protocol(_) | ConnectorError::Unavailable(_)) => {
                    let place = not_in.map(|folder| Place { folder: folder.to_owned(), uid: id });
                    self.page.vanished.extend(place);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Everything that is in a folder is told once more; what else we have there is no more.
    async fn anew(&mut self, folder: &str, location: Option<String>) -> Result<At, ConnectorError> {
        let told = delta::anew(self.call, folder, location, MOST_ANEW).await?;
        let Some(Told { messages, at }) = told else { return Err(ConnectorError::CursorExpired) };
        self.tell_present(folder, &messages)?;
        Ok(at)
    }

    fn tell_present(&mut self, folder: &str, messages: &[Message]) -> Result<(), ConnectorError> {
        let latest: BTreeMap<&str, &Message> = messages.iter().map(|message| (&*message.id, message)).collect();
        let there: Vec<&Message> = latest.into_values().filter(|message| message.removed.is_none()).collect();
        let uids = there.iter().map(|message| message.id.clone()).collect();
        for message in there {
            if !self.round.is_first() || message.received_date_time >= Some(self.round.begun_at) {
                self.tell(message, folder)?;
            }
        }
        self.page.present.push(Present { folder: folder.to_owned(), uids });
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

pub fn whole_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
