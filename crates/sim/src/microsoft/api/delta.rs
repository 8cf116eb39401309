//! Delta queries: rounds of pages, each ending with a link to the next round.

use axum::http::header::LOCATION;
use serde_json::{Value, json};

use super::super::account::OutlookAccount;
use super::super::error::GraphError;
use super::super::faults::MicrosoftFaultKind;
use super::super::filter::MessageFilter;
use super::super::link_state::LinkState;
use super::super::message_view::ViewOptions;
use super::super::world::MicrosoftMailbox;
use super::call::GraphCallContext;
use super::messages;
use crate::response::SimResponse;
use crate::spec::Side;

/// The maximum number of messages of a round with a filter.
const MAX_FILTERED_ITEMS: usize = 5_000;

/// One in how many pages is empty; one in how many repeats an item follows.
const EMPTY_PAGE_ONE_IN: u64 = 16;
const REPEATED_ITEM_ONE_IN: u64 = 8;

pub type DeltaPosition = (i64, u64);

/// The change log that a delta round reads.
#[derive(Debug, Clone, Copy)]
pub struct ChangeLog {
    pub seed: u64,
    /// The current change counter.
    pub changes: u64,
    /// Delta tokens before this change have expired.
    pub oldest: u64,
    /// The default page size.
    pub page: usize,
}

impl OutlookAccount {
    pub fn log(&self, oldest: u64) -> ChangeLog {
        ChangeLog {
            seed: self.seed,
            changes: self.changes,
            oldest: self.oldest.max(oldest),
            page: messages::DEFAULT_PAGE_SIZE,
        }
    }
}

/// Begins a round, or continues it from the link's token.
pub fn open_round(context: &GraphCallContext<'_>, log: &ChangeLog, of: &str) -> Result<LinkState, GraphError> {
    let token = ["$skiptoken", "$deltatoken"].into_iter().find_map(|name| context.call.query(name));
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        let size = match context.call.query("$top") {
            Some(_) => messages::page_size(context)?,
            None => log.page,
        };
        return Ok(LinkState {
            of: of.to_owned(),
            is_initial: true,
            start: log.changes,
            size,
            select: context.select.clone(),
            filter: context.call.query("$filter").map(str::to_owned),
            order: context.call.query("$orderby").map(str::to_owned),
            change_type: context.call.query("changeType").map(str::to_owned),
            ..LinkState::default()
        });
    };
    if let Some((name, _)) = context.call.queries().find(|(name, _)| !name.ends_with("token")) {
        let why = format!("{name} is part of the link already");
        context.world.violations.add(Side::Request, &context.call.method.id, &why);
        return Err(GraphError::bad(why));
    }
    let state = LinkState::read(token, log.seed, of)
        .ok_or_else(|| GraphError::new(400, "SyncStateInvalid", "The sync state is not valid for this folder."))?;
    if state.start < log.oldest {
        return Err(expired());
    }
    Ok(state)
}

pub fn expired() -> GraphError {
    GraphError::new(410, "syncStateNotFound", "The sync state generation is not found; starting over is required.")
}

/// Adds the Location at which the client starts over.
pub fn with_location(answer: SimResponse, url: &str, path: &str) -> SimResponse {
    answer.with(LOCATION, &format!("{url}{path}?$deltatoken="))
}

/// Returns the page size: the client's preference, or the round's.
pub fn page_size(context: &GraphCallContext<'_>, state: &LinkState) -> usize {
    context.prefer.page_size.unwrap_or(state.size).clamp(1, 1_000)
}

/// Builds one page of the remaining items of a round.
pub fn page(
    context: &GraphCallContext<'_>,
    log: &ChangeLog,
    state: LinkState,
    left: Vec<(DeltaPosition, Value)>,
) -> SimResponse {
    let (seed, issued_ms) = (log.seed, context.world.now_ms());
    let chance = state.chance(seed);
    let is_empty = context.has(&MicrosoftFaultKind::EmptyPage)
        || (state.at.is_some() && !state.was_empty && chance.is_multiple_of(EMPTY_PAGE_ONE_IN));
    let size = if is_empty { 0 } else { page_size(context, &state) };
    let is_more = left.len() > size;
    let mut value: Vec<Value> = Vec::new();
    let mut at = state.at;
    for (position, item) in left.into_iter().take(size) {
        at = Some(position);
        value.push(item);
    }
    let reported = state.reported + value.len();
    if context.has(&MicrosoftFaultKind::RepeatedItems) {
        value.extend(value.clone());
    } else if chance % REPEATED_ITEM_ONE_IN == 3 && value.len() > 1 {
        value.extend(value.first().cloned());
    }
    let mut body = json!({"@odata.context": context.context("delta"), "value": value});
    if is_more || is_empty {
        let next = LinkState { at, reported, was_empty: is_empty, issued_ms, ..state };
        body["@odata.nextLink"] = json!(context.link("$skiptoken", &next.write(seed)));
    } else {
        // Changes during the initial round belong to the next one.
        let start = if state.is_initial { state.start } else { log.changes };
        let next = LinkState { is_initial: false, start, at: None, reported: 0, was_empty: false, issued_ms, ..state };
        body["@odata.deltaLink"] = json!(context.link("$deltatoken", &next.write(seed)));
    }
    SimResponse::json(body)
}

/// Answers a delta query of one folder's messages.
pub fn of_messages(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let account = mailbox.account();
    let number = account.find_folder(context.call.path("mailFolder-id")).map_err(messages::missing)?;
    let folder = &account.folders[&number];
    let log = account.log(folder.oldest);
    let state = open_round(context, &log, &format!("delta {number}"))?;
    let filter = options(&state, context)?;
    let size = page_size(context, &state);
    let options = messages::options(context, state.select.as_deref());
    let left = if state.is_initial {
        all(context, &account, number, &state, filter.as_ref(), &options, size)
    } else {
        changed(context, &account, number, &state, filter.as_ref(), &options, size)
    };
    Ok(page(context, &log, state, left))
}

fn invalid_query(why: &str) -> GraphError {
    GraphError::new(400, "ErrorInvalidUrlQuery", why)
}

/// Checks the options of a delta query of messages.
fn options(state: &LinkState, context: &GraphCallContext<'_>) -> Result<Option<MessageFilter>, GraphError> {
    if context.call.query("$search").is_some() || context.call.query("$expand").is_some() {
        return Err(invalid_query("$search and $expand are not supported with delta."));
    }
    if state.order.as_deref().is_some_and(|order| order != "receivedDateTime desc") {
        return Err(invalid_query("Only $orderby=receivedDateTime desc is supported with delta."));
    }
    if state.change_type.as_deref().is_some_and(|kind| !["created", "updated", "deleted"].contains(&kind)) {
        return Err(invalid_query("changeType is created, updated or deleted."));
    }
    let filter = state.filter.as_deref().map(MessageFilter::read).transpose().map_err(|why| invalid_query(&why))?;
    if filter.as_ref().is_some_and(|filter| !filter.is_since_received()) {
        return Err(invalid_query("Only $filter=receivedDateTime ge or gt is supported with delta."));
    }
    Ok(filter)
}

/// Returns the folder's messages, newest first; one more than a page, to see whether there are more.
fn all(
    context: &GraphCallContext<'_>,
    account: &OutlookAccount,
    folder: u32,
    state: &LinkState,
    filter: Option<&MessageFilter>,
    options: &ViewOptions<'_>,
    size: usize,
) -> Vec<(DeltaPosition, Value)> {
    if state.change_type.as_deref().is_some_and(|kind| kind != "created") {
        return Vec::new();
    }
    let most = if filter.is_some() { MAX_FILTERED_ITEMS.saturating_sub(state.reported) } else { usize::MAX };
    let (letters, views) = (&context.world.letters, &context.world.provider.views);
    let before = state.at.unwrap_or((i64::MAX, u64::MAX));
    let older = account.folders[&folder].by_date.range(..before).rev();
    let found = older.filter(|(_, number)| filter.is_none_or(|filter| filter.matches(&account.messages[number])));
    found
        .take(most.min(size + 1))
        .map(|at| (*at, account.show(at.1, &account.messages[&at.1], options, letters, views)))
        .collect()
}

/// Returns changed and removed messages in order of change.
fn changed(
    context: &GraphCallContext<'_>,
    account: &OutlookAccount,
    folder: u32,
    state: &LinkState,
    filter: Option<&MessageFilter>,
    options: &ViewOptions<'_>,
    size: usize,
) -> Vec<(DeltaPosition, Value)> {
    let after = state.at.map_or(state.start, |(at, _)| at as u64);
    let (letters, views) = (&context.world.letters, &context.world.provider.views);
    let is_wanted = |kind: &str| state.change_type.as_deref().is_none_or(|only| only == kind);
    let folder = &account.folders[&folder];
    let present = folder.changed.range(after + 1..).filter(|(_, number)| {
        let message = &account.messages[*number];
        let is_new = message.entered_at > state.start;
        // Changes of already reported messages are reported even if the filter does not match.
        is_wanted(if is_new { "created" } else { "updated" })
            && (!is_new || filter.is_none_or(|filter| filter.matches(message)))
    });
    let present = present.take(size + 1).map(|(at, number)| {
        ((*at as i64, *number), account.show(*number, &account.messages[number], options, letters, views))
    });
    let gone =
        folder.removed.range(after + 1..).filter(|_| is_wanted("deleted")).take(size + 1).map(|(at, removal)| {
            let id = account.id_before(removal.number, removal.moves, options.is_immutable);
            ((*at as i64, removal.number), json!({"id": id, "@removed": {"reason": "deleted"}}))
        });
    let mut left: Vec<(DeltaPosition, Value)> = present.chain(gone).collect();
    left.sort_by_key(|(at, _)| *at);
    left.truncate(size + 1);
    left
}
