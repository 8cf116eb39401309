//! Mail folders: children, single folders, delta.

use serde_json::{Value, json};

use super::super::account::OutlookAccount;
use super::super::error::GraphError;
use super::super::faults::MicrosoftFaultKind;
use super::super::folders::ROOT;
use super::super::link_state::LinkState;
use super::super::world::MicrosoftMailbox;
use super::call::GraphCallContext;
use super::{delta, messages, select};
use crate::response::SimResponse;

fn show(account: &OutlookAccount, number: u32) -> Value {
    let folder = &account.folders[&number];
    let total =
        if folder.is_search { account.folders.values().map(|other| other.unread).sum() } else { folder.by_date.len() };
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

/// Lists the children of a folder, or of the root.
pub fn list(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let account = mailbox.account();
    let parent = match context.call.path("mailFolder-id") {
        "" => ROOT,
        id => account.find_folder(id).map_err(messages::missing)?,
    };
    let with_hidden = context.call.query("includeHiddenFolders") == Some("true");
    let of = format!("folders {parent}");
    let state = match context.call.query("$skiptoken") {
        Some(token) => {
            LinkState::read(token, account.seed, &of).ok_or_else(|| GraphError::bad("The skip token is not valid."))?
        }
        None => LinkState {
            of,
            size: messages::page_size(context)?,
            select: context.select.clone(),
            is_initial: with_hidden,
            ..LinkState::default()
        },
    };
    let after = state.at.map_or(-1, |(number, _)| number);
    let size = if context.has(&MicrosoftFaultKind::EmptyPage) { 0 } else { state.size };
    let shown = account.children(parent).filter(|(_, folder)| state.is_initial || !folder.is_hidden);
    let left: Vec<u32> = shown.map(|(number, _)| number).filter(|number| i64::from(*number) > after).collect();
    let page = &left[..left.len().min(size)];
    let mut value: Vec<Value> =
        page.iter().map(|number| select::only(show(&account, *number), state.select.as_deref())).collect();
    if context.has(&MicrosoftFaultKind::RepeatedItems) {
        value.extend(value.clone());
    }
    let mut body = json!({"@odata.context": context.context("mailFolders"), "value": value});
    if page.len() < left.len() {
        let at = page.last().map_or(state.at, |last| Some((i64::from(*last), 0)));
        let next = LinkState { at, ..state };
        body["@odata.nextLink"] = json!(context.link("$skiptoken", &next.write(account.seed)));
    }
    Ok(SimResponse::json(body))
}

pub fn get(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let account = mailbox.account();
    let number = account.find_folder(context.call.path("mailFolder-id")).map_err(messages::missing)?;
    let mut shown = select::only(show(&account, number), context.select.as_deref());
    shown["@odata.context"] = json!(context.context("mailFolders/$entity"));
    Ok(SimResponse::json(shown))
}

/// Answers a delta query of all folders, hidden ones included.
pub fn changes(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> Result<SimResponse, GraphError> {
    let account = mailbox.account();
    let log = account.log(0);
    let state = delta::open_round(context, &log, "folders delta")?;
    for option in ["$filter", "$orderby", "$search", "$expand", "$top"] {
        if context.call.query(option).is_some() {
            return Err(GraphError::new(400, "ErrorInvalidUrlQuery", format!("{option} is not supported with delta.")));
        }
    }
    let after = state.at.map_or(if state.is_initial { 0 } else { state.start }, |(at, _)| at as u64);
    // By last change; deleted folders only if they were deleted since the round began.
    let mut reported: Vec<(u64, Value)> = Vec::new();
    for (number, folder) in account.folders.iter().filter(|(_, folder)| folder.parent.is_some()) {
        // Initial folders share one change counter, so the number orders them.
        let at = if state.is_initial { u64::from(*number) + 1 } else { folder.changed_at };
        if at > after {
            reported.push((at, select::only(show(&account, *number), state.select.as_deref())));
        }
    }
    if !state.is_initial {
        for (at, number) in account.gone_folders.range(after + 1..) {
            reported.push((*at, json!({"id": account.folder_id(*number), "@removed": {"reason": "deleted"}})));
        }
    }
    reported.sort_by_key(|(at, _)| *at);
    let reported = reported.into_iter().map(|(at, value)| ((at as i64, 0), value)).collect();
    Ok(delta::page(context, &log, state, reported))
}
