//! Messages: which there are, one by one, and their bytes.

use axum::http::header::CONTENT_TYPE;
use serde_json::json;

use super::super::account::Account;
use super::super::error::Refusal;
use super::super::face::Wanted;
use super::super::faults::Kind;
use super::super::filter::{Field, Filter, Order};
use super::super::ids::NoSuch;
use super::super::links::Place;
use super::super::world::Mailbox;
use super::call::Entered;
use crate::answer::{Answer, Body};
use crate::letters::{Alphabet, Content};

/// A page unless asked otherwise, and the most that is given.
pub const PAGE: usize = 10;
const MOST: usize = 1_000;

/// What the bytes of messages say they are, though they are neither.
const KINDS: [&str; 2] = ["text/plain", "application/octet-stream"];

pub fn missing(why: NoSuch) -> Refusal {
    match why {
        NoSuch::Malformed => Refusal::new(400, "ErrorInvalidIdMalformed", "Id is malformed."),
        NoSuch::Missing => Refusal::item_not_found(),
    }
}

/// From `$top`, or what is preferred.
pub fn page_size(entered: &Entered<'_>) -> Result<usize, Refusal> {
    match entered.call.query("$top").map(str::parse::<usize>) {
        None => Ok(entered.prefer.page_size.unwrap_or(PAGE).min(MOST)),
        Some(Ok(top)) if (1..=MOST).contains(&top) => Ok(top),
        Some(_) => {
            Err(Refusal::new(400, "ErrorInvalidUrlQueryFilter", "The $top value must be between 1 and 1000 inclusive."))
        }
    }
}

pub fn wanted<'a>(entered: &Entered<'_>, fields: Option<&'a [String]>) -> Wanted<'a> {
    Wanted { fields, is_immutable: entered.prefer.is_immutable, is_text_body: entered.prefer.is_text_body }
}

/// What a listing asks for, or what its link remembers.
fn place(entered: &Entered<'_>, account: &Account, of: &str) -> Result<Place, Refusal> {
    if let Some(token) = entered.call.query("$skiptoken") {
        let place = Place::read(token, account.seed, of);
        return place.ok_or_else(|| Refusal::bad("The skip token is not valid."));
    }
    Ok(Place {
        of: of.to_owned(),
        size: page_size(entered)?,
        select: entered.select.clone(),
        filter: entered.call.query("$filter").map(str::to_owned),
        order: entered.call.query("$orderby").map(str::to_owned),
        ..Place::default()
    })
}

/// A page goes on after as many as were told, as Graph counts: what has gone meanwhile makes it pass over others.
pub fn list(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let account = mailbox.account();
    let folder = match entered.call.path("mailFolder-id") {
        "" => None,
        id => Some(account.find_folder(id).map_err(missing)?),
    };
    let place = place(entered, &account, &format!("messages {folder:?}"))?;
    let refused = |why: String| Refusal::new(400, "ErrorInvalidUrlQueryFilter", why);
    let filter = place.filter.as_deref().map(Filter::read).transpose().map_err(refused)?.unwrap_or_default();
    let order = place.order.as_deref().map(Order::read).transpose().map_err(refused)?;
    if order.is_some_and(|order| !filter.allows(&order)) {
        let message = "The restriction or sort order is too complex for this operation.";
        return Err(Refusal::new(400, "InefficientFilter", message));
    }
    let order = order.unwrap_or_default();
    let size = if entered.has(&Kind::EmptyPage) { 0 } else { place.size };
    let mut found: Vec<(i64, u64)> = Vec::new();
    let mut is_more = false;
    let matching = ordered(&account, folder, order).filter(|(_, number)| filter.matches(&account.messages[number]));
    for (key, number) in matching.skip(place.told) {
        if found.len() == size {
            is_more = true;
            break;
        }
        found.push((key, number));
    }
    let wanted = wanted(entered, place.select.as_deref());
    let (letters, faces) = (&entered.world.letters, &entered.world.faces);
    let show = |(_, number): &(i64, u64)| account.show(*number, &account.messages[number], &wanted, letters, faces);
    let mut value: Vec<_> = found.iter().map(show).collect();
    if entered.has(&Kind::RepeatedItems) {
        value.extend(value.clone());
    }
    let mut body = json!({"@odata.context": entered.context("messages"), "value": value});
    if entered.call.query("$count") == Some("true") {
        body["@odata.count"] =
            json!(folder.map_or(account.message_count(), |folder| account.folders[&folder].by_date.len()));
    }
    if is_more {
        let next = Place { told: place.told + found.len(), ..place };
        body["@odata.nextLink"] = json!(entered.link("$skiptoken", &next.write(account.seed)));
    }
    Ok(Answer::json(body))
}

/// Of one folder or of all.
fn ordered<'a>(account: &'a Account, folder: Option<u32>, order: Order) -> Box<dyn Iterator<Item = (i64, u64)> + 'a> {
    let of_search = folder.is_some_and(|folder| account.folders[&folder].is_search);
    let index = match folder {
        Some(folder) if !of_search => &account.folders[&folder].by_date,
        _ => &account.by_date,
    };
    // The one search folder there is shows what is unread, wherever it lies.
    let shown = index.iter().copied().filter(move |(_, number)| !of_search || !account.messages[number].is_read);
    if order.field == Field::Received {
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

pub fn get(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let account = mailbox.account();
    let number = account.find_message(entered.call.path("message-id")).map_err(missing)?;
    let wanted = wanted(entered, entered.select.as_deref());
    let (letters, faces) = (&entered.world.letters, &entered.world.faces);
    let mut shown = account.show(number, &account.messages[&number], &wanted, letters, faces);
    shown["@odata.context"] = json!(entered.context("messages/$entity"));
    Ok(Answer::json(shown))
}

/// The bytes as they would be mailed.
pub fn value(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let (number, content) = content(entered, mailbox)?;
    let letters = &entered.world.letters;
    let pieces = match entered.in_batch {
        true => letters.encoded(&content, Alphabet::Standard),
        false => letters.pieces(&content),
    };
    let kind = KINDS[(number % 2) as usize];
    Ok(Answer::new(200, Body::Other { pieces }).with(CONTENT_TYPE, kind))
}

/// A copy costs next to nothing, and the mailbox is free while it is read.
pub fn content(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<(u64, Content), Refusal> {
    let account = mailbox.account();
    let number = account.find_message(entered.call.path("message-id")).map_err(missing)?;
    Ok((number, account.messages[&number].content.clone()))
}
