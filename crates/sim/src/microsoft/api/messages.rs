//! Messages: listing, single messages, raw content.

use axum::http::header::CONTENT_TYPE;
use serde_json::json;

use super::super::account::OutlookAccount;
use super::super::error::GraphError;
use super::super::faults::MicrosoftFaultKind;
use super::super::filter::{MessageFilter, MessageOrder, MessageProperty};
use super::super::ids::IdError;
use super::super::link_state::LinkState;
use super::super::message_view::ViewOptions;
use super::super::world::MicrosoftMailbox;
use super::call::GraphCallContext;
use crate::letter_pool::{Alphabet, Content};
use crate::response::{ResponseBody, SimResponse};

/// The default page size; the maximum follows.
pub const DEFAULT_PAGE_SIZE: usize = 10;
const MAX_PAGE_SIZE: usize = 1_000;

/// Content types of raw messages: Graph uses both.
const VALUE_CONTENT_TYPES: [&str; 2] = ["text/plain", "application/octet-stream"];

pub fn missing(why: IdError) -> GraphError {
    match why {
        IdError::Malformed => GraphError::new(400, "ErrorInvalidIdMalformed", "Id is malformed."),
        IdError::Missing => GraphError::item_not_found(),
    }
}

fn invalid_query(why: String) -> GraphError {
    GraphError::new(400, "ErrorInvalidUrlQueryFilter", why)
}

/// Returns the page size of `$top`, or the client's preference.
pub fn page_size(context: &GraphCallContext<'_>) -> Result<usize, GraphError> {
    match context.call.query("$top").map(str::parse::<usize>) {
        None => Ok(context.prefer.page_size.unwrap_or(DEFAULT_PAGE_SIZE).min(MAX_PAGE_SIZE)),
        Some(Ok(top)) if (1..=MAX_PAGE_SIZE).contains(&top) => Ok(top),
        Some(_) => Err(GraphError::new(
            400,
            "ErrorInvalidUrlQueryFilter",
            "The $top value must be between 1 and 1000 inclusive.",
        )),
    }
}

pub fn options<'a>(context: &GraphCallContext<'_>, fields: Option<&'a [String]>) -> ViewOptions<'a> {
    ViewOptions { fields, is_immutable: context.prefer.is_immutable, is_text_body: context.prefer.is_text_body }
}

/// Returns the state of a listing: from its link, or from the query.
fn link_state(context: &GraphCallContext<'_>, account: &OutlookAccount, of: &str) -> Result<LinkState, GraphError> {
    if let Some(token) = context.call.query("$skiptoken") {
        let state = LinkState::read(token, account.seed, of);
        return state.ok_or_else(|| GraphError::bad("The skip token is not valid."));
    }
    Ok(LinkState {
        of: of.to_owned(),
        size: page_size(context)?,
        select: context.select.clone(),
        filter: context.call.query("$filter").map(str::to_owned),
        order: context.call.query("$orderby").map(str::to_owned),
        ..LinkState::default()
    })
}

/// Lists messages. Like Graph, pages are offsets: items removed meanwhile make later ones be skipped.
pub fn list(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let account = mailbox.account();
    let folder = match context.call.path("mailFolder-id") {
        "" => None,
        id => Some(account.find_folder(id).map_err(missing)?),
    };
    let state = link_state(context, &account, &format!("messages {folder:?}"))?;
    let filter =
        state.filter.as_deref().map(MessageFilter::read).transpose().map_err(invalid_query)?.unwrap_or_default();
    let order = state.order.as_deref().map(MessageOrder::read).transpose().map_err(invalid_query)?;
    if order.is_some_and(|order| !filter.allows(&order)) {
        let message = "The restriction or sort order is too complex for this operation.";
        return Err(GraphError::new(400, "InefficientFilter", message));
    }
    let order = order.unwrap_or_default();
    let size = if context.has(&MicrosoftFaultKind::EmptyPage) { 0 } else { state.size };
    let mut found: Vec<(i64, u64)> = Vec::new();
    let mut is_more = false;
    let matching = ordered(&account, folder, order).filter(|(_, number)| filter.matches(&account.messages[number]));
    for (key, number) in matching.skip(state.reported) {
        if found.len() == size {
            is_more = true;
            break;
        }
        found.push((key, number));
    }
    let options = options(context, state.select.as_deref());
    let (letters, views) = (&context.world.letters, &context.world.provider.views);
    let mut value: Vec<_> = found
        .iter()
        .map(|(_, number)| account.show(*number, &account.messages[number], &options, letters, views))
        .collect();
    if context.has(&MicrosoftFaultKind::RepeatedItems) {
        value.extend(value.clone());
    }
    let mut body = json!({"@odata.context": context.context("messages"), "value": value});
    if context.call.query("$count") == Some("true") {
        body["@odata.count"] =
            json!(folder.map_or(account.message_count(), |folder| account.folders[&folder].by_date.len()));
    }
    if is_more {
        let next = LinkState { reported: state.reported + found.len(), ..state };
        body["@odata.nextLink"] = json!(context.link("$skiptoken", &next.write(account.seed)));
    }
    Ok(SimResponse::json(body))
}

/// Iterates over the messages of one folder or of all, in order.
fn ordered<'a>(
    account: &'a OutlookAccount,
    folder: Option<u32>,
    order: MessageOrder,
) -> Box<dyn Iterator<Item = (i64, u64)> + 'a> {
    let of_search = folder.is_some_and(|folder| account.folders[&folder].is_search);
    let index = match folder {
        Some(folder) if !of_search => &account.folders[&folder].by_date,
        _ => &account.by_date,
    };
    // The only search folder shows unread messages of all folders.
    let shown = index.iter().copied().filter(move |(_, number)| !of_search || !account.messages[number].is_read);
    if order.field == MessageProperty::Received {
        return if order.is_descending {
            Box::new(
                index.iter().rev().copied().filter(move |(_, number)| !of_search || !account.messages[number].is_read),
            )
        } else {
            Box::new(shown)
        };
    }
    let mut all: Vec<(i64, u64)> =
        shown.map(|(_, number)| (order.field.of(&account.messages[&number]), number)).collect();
    all.sort_unstable();
    if order.is_descending {
        all.reverse();
    }
    Box::new(all.into_iter())
}

pub fn get(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let account = mailbox.account();
    let number = account.find_message(context.call.path("message-id")).map_err(missing)?;
    let options = options(context, context.select.as_deref());
    let (letters, views) = (&context.world.letters, &context.world.provider.views);
    let mut shown = account.show(number, &account.messages[&number], &options, letters, views);
    shown["@odata.context"] = json!(context.context("messages/$entity"));
    Ok(SimResponse::json(shown))
}

/// Returns the raw message.
pub fn value(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let (number, content) = content(context, mailbox)?;
    let letters = &context.world.letters;
    let pieces =
        if context.in_batch { letters.encoded(&content, Alphabet::Standard) } else { letters.pieces(&content) };
    let kind = VALUE_CONTENT_TYPES[(number % 2) as usize];
    Ok(SimResponse::new(200, ResponseBody::Other { pieces }).with(CONTENT_TYPE, kind))
}

/// Returns a message's number and content. The cheap copy frees the mailbox's lock.
pub fn content(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<(u64, Content), GraphError> {
    let account = mailbox.account();
    let number = account.find_message(context.call.path("message-id")).map_err(missing)?;
    Ok((number, account.messages[&number].content.clone()))
}
