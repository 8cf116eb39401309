//! `users.history.list`: changes since a history id.

use serde_json::json;

use super::super::error::error;
use super::super::history::HistoryQuery;
use super::super::labels::LabelId;
use super::call::GmailCallContext;
use super::messages::{page_size, read_token, write_token};
use crate::response::SimResponse;

pub fn list(context: &GmailCallContext<'_>) -> SimResponse {
    let call = context.call;
    let Some(start) = call.query("startHistoryId").and_then(|id| id.parse::<u64>().ok()) else {
        return error(400, "invalidArgument", "Missing required parameter: startHistoryId");
    };
    let types: Vec<String> = call.all("historyTypes").map(str::to_owned).collect();
    let account = context.mailbox.account();
    let label = match call.query("labelId") {
        None => None,
        Some(text) => match LabelId::parse(text).filter(|label| account.labels.has(*label)) {
            None => return error(400, "invalidArgument", "Invalid label id"),
            label => label,
        },
    };
    // A page token is valid only for the query that it was issued for.
    let question = format!("{start} {types:?} {label:?}");
    let after = match call.query("pageToken").map(|token| read_token::<1>(token, 'h', &question)) {
        None => None,
        Some(Some([after])) => Some(after as u64),
        Some(None) => return error(400, "invalidArgument", "Invalid pageToken"),
    };
    let query = HistoryQuery { start, after, limit: page_size(call), types, label };
    let Ok((records, next)) = account.history(&query) else {
        return error(404, "notFound", "Requested entity was not found.");
    };
    let mut body = json!({"historyId": account.history_id().to_string()});
    if !records.is_empty() {
        body["history"] = json!(records);
    }
    if let Some(next) = next {
        body["nextPageToken"] = json!(write_token('h', &[next as i64], &question));
    }
    SimResponse::json(body)
}
