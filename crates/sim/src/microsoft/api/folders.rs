//! Folders: below the root, below another one, one by one, and what changed among them.

use serde_json::{Value, json};

use super::super::account::Account;
use super::super::error::Refusal;
use super::super::faults::Kind;
use super::super::folders::ROOT;
use super::super::links::Place;
use super::super::world::Mailbox;
use super::call::Entered;
use super::{delta, messages, select};
use crate::answer::Answer;

fn show(account: &Account, number: u32) -> Value {
    let folder = &account.folders[&number];
    let total = match folder.is_search {
        true => account.folders.values().map(|other| other.unread).sum(),
        false => folder.by_date.len(),
    };
    let mut shown = json!({
        "id": account.folder_id(number),
        "displayName": folder.name,
        "parentFolderId": account.folder_id(folder.parent.unwrap_or(ROOT)),
        "childFolderCount": account.children(number).filter(|(_, child)| !child.is_hidden).count(),
        "unreadItemCount": if folder.is_search { total } else { folder.unread },
        "totalItemCount": total,
        "isHidden": folder.is_hidden,
    });
    if folder.is_search {
        shown["@odata.type"] = json!("#microsoft.graph.mailSearchFolder");
        shown["isSupported"] = json!(true);
        shown["includeNestedFolders"] = json!(true);
        shown["sourceFolderIds"] = json!([account.folder_id(ROOT)]);
        shown["filterQuery"] = json!("isRead eq false");
    }
    shown
}

/// Right below the folder that is named, or the root.
pub fn list(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let account = mailbox.account();
    let parent = match entered.call.path("mailFolder-id") {
        "" => ROOT,
        id => account.find_folder(id).map_err(messages::missing)?,
    };
    let with_hidden = entered.call.query("includeHiddenFolders") == Some("true");
    let of = format!("folders {parent}");
    let place = match entered.call.query("$skiptoken") {
        Some(token) => {
            Place::read(token, account.seed, &of).ok_or_else(|| Refusal::bad("The skip token is not valid."))?
        }
        None => Place {
            of,
            size: messages::page_size(entered)?,
            select: entered.select.clone(),
            is_initial: with_hidden,
            ..Place::default()
        },
    };
    let after = place.at.map_or(-1, |(number, _)| number);
    let size = if entered.has(&Kind::EmptyPage) { 0 } else { place.size };
    let shown = account.children(parent).filter(|(_, folder)| place.is_initial || !folder.is_hidden);
    let left: Vec<u32> = shown.map(|(number, _)| number).filter(|number| i64::from(*number) > after).collect();
    let page = &left[..left.len().min(size)];
    let one = |number: &u32| select::only(show(&account, *number), place.select.as_deref());
    let mut value: Vec<Value> = page.iter().map(one).collect();
    if entered.has(&Kind::RepeatedItems) {
        value.extend(value.clone());
    }
    let mut body = json!({"@odata.context": entered.context("mailFolders"), "value": value});
    if page.len() < left.len() {
        let at = page.last().map_or(place.at, |last| Some((i64::from(*last), 0)));
        let next = Place { at, ..place };
        body["@odata.nextLink"] = json!(entered.link("$skiptoken", &next.write(account.seed)));
    }
    Ok(Answer::json(body))
}

pub fn get(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let account = mailbox.account();
    let number = account.find_folder(entered.call.path("mailFolder-id")).map_err(messages::missing)?;
    let mut shown = select::only(show(&account, number), entered.select.as_deref());
    shown["@odata.context"] = json!(entered.context("mailFolders/$entity"));
    Ok(Answer::json(shown))
}

/// All folders of the mailbox, hidden ones too, and what becomes of them.
pub fn changes(entered: &Entered<'_>, mailbox: &Mailbox) -> Result<Answer, Refusal> {
    let account = mailbox.account();
    let log = account.log(0);
    let place = delta::begun(entered, &log, "folders delta")?;
    for option in ["$filter", "$orderby", "$search", "$expand", "$top"] {
        if entered.call.query(option).is_some() {
            return Err(Refusal::new(400, "ErrorInvalidUrlQuery", format!("{option} is not supported with delta.")));
        }
    }
    let after = place.at.map_or(if place.is_initial { 0 } else { place.start }, |(at, _)| at as u64);
    // By when each changed last; of those that are gone, only what went since the round began.
    let mut told: Vec<(u64, Value)> = Vec::new();
    for (number, folder) in account.folders.iter().filter(|(_, folder)| folder.parent.is_some()) {
        // What is there from the start has one time for all: the number tells them apart.
        let at = if place.is_initial { u64::from(*number) + 1 } else { folder.changed_at };
        if at > after {
            told.push((at, select::only(show(&account, *number), place.select.as_deref())));
        }
    }
    if !place.is_initial {
        for (at, number) in account.gone_folders.range(after + 1..) {
            told.push((*at, json!({"id": account.folder_id(*number), "@removed": {"reason": "deleted"}})));
        }
    }
    told.sort_by_key(|(at, _)| *at);
    let told = told.into_iter().map(|(at, value)| ((at as i64, 0), value)).collect();
    Ok(delta::page(entered, &log, place, told))
}
