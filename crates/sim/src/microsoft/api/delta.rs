//! What changed: rounds of pages, each round ending with a link to the next.

use axum::http::header::LOCATION;
use serde_json::{Value, json};

use super::super::account::Account;
use super::super::error::Refusal;
use super::super::face::Wanted;
use super::super::faults::Kind;
use super::super::filter::Filter;
use super::super::links::Place;
use super::super::world::Mailbox;
use super::call::Entered;
use super::messages;
use crate::answer::Answer;
use crate::spec::Side;

/// The most messages of a round with a filter.
const MOST_FILTERED: usize = 5_000;

/// One page in so many comes empty, and on one in so many something comes twice.
const EMPTY: u64 = 16;
const REPEATED: u64 = 8;

pub type At = (i64, u64);

/// Whose changes a round tells.
#[derive(Debug, Clone, Copy)]
pub struct Log {
    pub seed: u64,
    /// How many there were so far.
    pub changes: u64,
    /// Tokens from before this one have expired.
    pub oldest: u64,
    /// How many come on a page unless it is said.
    pub page: usize,
}

impl Account {
    pub fn log(&self, oldest: u64) -> Log {
        Log { seed: self.seed, changes: self.changes, oldest: self.oldest.max(oldest), page: messages::PAGE }
    }
}

/// Where a round stands: at its beginning, or where the link says.
pub fn begun(entered: &Entered<'_>, log: &Log, of: &str) -> Result<Place, Refusal> {
    let token = ["$skiptoken", "$deltatoken"].into_iter().find_map(|name| entered.call.query(name));
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        let size = match entered.call.query("$top") {
            Some(_) => messages::page_size(entered)?,
            None => log.page,
        };
        return Ok(Place {
            of: of.to_owned(),
            is_initial: true,
            start: log.changes,
            size,
            select: entered.select.clone(),
            filter: entered.call.query("$filter").map(str::to_owned),
            order: entered.call.query("$orderby").map(str::to_owned),
            change_type: entered.call.query("changeType").map(str::to_owned),
            ..Place::default()
        });
    };
    if let Some((name, _)) = entered.call.queries().find(|(name, _)| !name.ends_with("token")) {
        let why = format!("{name} is part of the link already");
        entered.world.violations.add(Side::Request, &entered.call.method.id, &why);
        return Err(Refusal::bad(why));
    }
    let place = Place::read(token, log.seed, of)
        .ok_or_else(|| Refusal::new(400, "SyncStateInvalid", "The sync state is not valid for this folder."))?;
    if place.start < log.oldest {
        return Err(expired());
    }
    Ok(place)
}

pub fn expired() -> Refusal {
    Refusal::new(410, "syncStateNotFound", "The sync state generation is not found; starting over is required.")
}

/// Where to start over.
pub fn with_location(answer: Answer, url: &str, path: &str) -> Answer {
    answer.with(LOCATION, &format!("{url}{path}?$deltatoken="))
}

/// As it is preferred.
pub fn page_size(entered: &Entered<'_>, place: &Place) -> usize {
    entered.prefer.page_size.unwrap_or(place.size).clamp(1, 1_000)
}

/// One page of what is left to be told in this round, in order.
pub fn page(entered: &Entered<'_>, log: &Log, place: Place, left: Vec<(At, Value)>) -> Answer {
    let (seed, issued_ms) = (log.seed, entered.world.now_ms());
    let chance = place.chance(seed);
    let is_empty =
        entered.has(&Kind::EmptyPage) || (place.at.is_some() && !place.was_empty && chance.is_multiple_of(EMPTY));
    let size = if is_empty { 0 } else { page_size(entered, &place) };
    let is_more = left.len() > size;
    let mut value: Vec<Value> = Vec::new();
    let mut at = place.at;
    for (position, item) in left.into_iter().take(size) {
        at = Some(position);
        value.push(item);
    }
    let told = place.told + value.len();
    if entered.has(&Kind::RepeatedItems) {
        value.extend(value.clone());
    } else if chance % REPEATED == 3 && value.len() > 1 {
        value.extend(value.first().cloned());
    }
    let mut body = json!({"@odata.context": entered.context("delta"), "value": value});
    if is_more || is_empty {
        let next = Place { at, told, was_empty: is_empty, issued_ms, ..place };
        body["@odata.nextLink"] = json!(entered.link("$skiptoken", &next.write(seed)));
    } else {
        // What happened during the first round is told in the next one.
        let start = if place.is_initial { place.start } else { log.changes };
        let next = Place { is_initial: false, start, at: None, told: 0, was_empty: false, issued_ms, ..place };
        body["@odata.deltaLink"] = json!(entered.link("$deltatoken", &next.write(seed)));
    }
    Answer::json(body)
}

/// Of one folder's messages.
pub fn of_messages(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let account = mailbox.account();
    let number = account.find_folder(entered.call.path("mailFolder-id")).map_err(messages::missing)?;
    let folder = &account.folders[&number];
    let log = account.log(folder.oldest);
    let place = begun(entered, &log, &format!("delta {number}"))?;
    let filter = options(&place, entered)?;
    let size = page_size(entered, &place);
    let wanted = messages::wanted(entered, place.select.as_deref());
    let left = match place.is_initial {
        true => all(entered, &account, number, &place, filter.as_ref(), &wanted, size),
        false => changed(entered, &account, number, &place, filter.as_ref(), &wanted, size),
    };
    Ok(page(entered, &log, place, left))
}

/// What a delta query of messages takes.
fn options(place: &Place, entered: &Entered<'_>) -> Result<Option<Filter>, Refusal> {
    let refused = |why: &str| Refusal::new(400, "ErrorInvalidUrlQuery", why);
    if entered.call.query("$search").is_some() || entered.call.query("$expand").is_some() {
        return Err(refused("$search and $expand are not supported with delta."));
    }
    if place.order.as_deref().is_some_and(|order| order != "receivedDateTime desc") {
        return Err(refused("Only $orderby=receivedDateTime desc is supported with delta."));
    }
    if place.change_type.as_deref().is_some_and(|kind| !["created", "updated", "deleted"].contains(&kind)) {
        return Err(refused("changeType is created, updated or deleted."));
    }
    let filter = place.filter.as_deref().map(Filter::read).transpose().map_err(|why| refused(&why))?;
    if filter.as_ref().is_some_and(|filter| !filter.is_since_received()) {
        return Err(refused("Only $filter=receivedDateTime ge or gt is supported with delta."));
    }
    Ok(filter)
}

/// All that there is, newest first; one more than fits a page, to tell that there is more.
fn all(
    entered: &Entered<'_>,
    account: &Account,
    folder: u32,
    place: &Place,
    filter: Option<&Filter>,
    wanted: &Wanted<'_>,
    size: usize,
) -> Vec<(At, Value)> {
    if place.change_type.as_deref().is_some_and(|kind| kind != "created") {
        return Vec::new();
    }
    let most = if filter.is_some() { MOST_FILTERED.saturating_sub(place.told) } else { usize::MAX };
    let (letters, faces) = (&entered.world.letters, &entered.world.faces);
    let before = place.at.unwrap_or((i64::MAX, u64::MAX));
    let older = account.folders[&folder].by_date.range(..before).rev();
    let found = older.filter(|(_, number)| filter.is_none_or(|filter| filter.matches(&account.messages[number])));
    let show = |at: &At| (*at, account.show(at.1, &account.messages[&at.1], wanted, letters, faces));
    found.take(most.min(size + 1)).map(show).collect()
}

/// What changed since, or went, in the order in which it did.
fn changed(
    entered: &Entered<'_>,
    account: &Account,
    folder: u32,
    place: &Place,
    filter: Option<&Filter>,
    wanted: &Wanted<'_>,
    size: usize,
) -> Vec<(At, Value)> {
    let after = place.at.map_or(place.start, |(at, _)| at as u64);
    let (letters, faces) = (&entered.world.letters, &entered.world.faces);
    let is_wanted = |kind: &str| place.change_type.as_deref().is_none_or(|only| only == kind);
    let folder = &account.folders[&folder];
    let present = folder.changed.range(after + 1..).filter(|(_, number)| {
        let message = &account.messages[*number];
        let is_new = message.entered_at > place.start;
        // Changes to what was told before come even if it does not match.
        is_wanted(if is_new { "created" } else { "updated" })
            && (!is_new || filter.is_none_or(|filter| filter.matches(message)))
    });
    let present = present.take(size + 1).map(|(at, number)| {
        ((*at as i64, *number), account.show(*number, &account.messages[number], wanted, letters, faces))
    });
    let gone =
        folder.removed.range(after + 1..).filter(|_| is_wanted("deleted")).take(size + 1).map(|(at, removal)| {
            let id = account.id_before(removal.number, removal.moves, wanted.is_immutable);
            ((*at as i64, removal.number), json!({"id": id, "@removed": {"reason": "deleted"}}))
        });
    let mut left: Vec<(At, Value)> = present.chain(gone).collect();
    left.sort_by_key(|(at, _)| *at);
    left.truncate(size + 1);
    left
}
