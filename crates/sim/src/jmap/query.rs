//! `Email/query`: the ids of messages in order, a window of them at a time.

use serde::Deserialize;

use super::account::{JmapAccount, message_number};

/// What the simulator reads of a query. Other filters and sort orders are not offered.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EmailQuery {
    pub filter: Option<EmailFilter>,
    pub sort: Option<Vec<SortComparator>>,
    pub position: i64,
    pub anchor: Option<String>,
    pub anchor_offset: i64,
    pub limit: Option<usize>,
    pub calculate_total: bool,
    pub collapse_threads: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EmailFilter {
    /// Only messages that were received before.
    pub before: Option<jiff::Timestamp>,
    /// Only messages that were received then or later.
    pub after: Option<jiff::Timestamp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SortComparator {
    pub property: String,
    #[serde(default = "ascending")]
    pub is_ascending: bool,
}

fn ascending() -> bool {
    true
}

/// A window of a query's results.
#[derive(Debug, PartialEq, Eq)]
pub struct QueryWindow {
    pub position: usize,
    pub numbers: Vec<u64>,
    pub total: usize,
}

impl JmapAccount {
    /// Answers a query with at most `limit` ids. The error is a type of RFC 8620.
    pub fn query(&self, query: &EmailQuery, limit: usize) -> Result<QueryWindow, &'static str> {
        let is_ascending = match query.sort.as_deref() {
            Some([by]) if by.property == "receivedAt" => by.is_ascending,
            _ => return Err("unsupportedSort"),
        };
        let filter = query.filter.as_ref();
        let [before, after] = [filter.and_then(|by| by.before), filter.and_then(|by| by.after)];
        let mut found: Vec<(i64, u64)> = self
            .messages
            .iter()
            .filter(|(_, message)| before.is_none_or(|before| message.received < before.as_second()))
            .filter(|(_, message)| after.is_none_or(|after| message.received >= after.as_second()))
            .map(|(number, message)| (message.received, *number))
            .collect();
        found.sort_unstable();
        if !is_ascending {
            found.reverse();
        }
        let start = match &query.anchor {
            Some(anchor) => {
                let number = message_number(anchor);
                let at = found.iter().position(|(_, found)| Some(*found) == number).ok_or("anchorNotFound")?;
                at as i64 + query.anchor_offset
            }
            None if query.position < 0 => found.len() as i64 + query.position,
            None => query.position,
        };
        let position = usize::try_from(start).unwrap_or_default();
        let numbers = found.iter().skip(position).take(limit).map(|(_, number)| *number).collect();
        Ok(QueryWindow { position, numbers, total: found.len() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::account::message_id;
    use super::*;
    use crate::letter_pool::LetterPool;

    #[test]
    fn window_begins_at_the_anchor() {
        let mut account = JmapAccount::new(1);
        account.fill(9, &LetterPool::new(1, 2), jiff::Timestamp::from_second(1_800_000_000).unwrap());
        let newest_first = json!([{"property": "receivedAt", "isAscending": false}]);
        let query = |more: serde_json::Value| {
            let mut query = json!({"sort": newest_first});
            query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            account.query(&serde_json::from_value(query).unwrap(), 4)
        };

        let first = query(json!({})).unwrap();
        assert_eq!((first.position, first.numbers.as_slice(), first.total), (0, [9, 8, 7, 6].as_slice(), 9));
        let second = query(json!({"anchor": message_id(6), "anchorOffset": 1})).unwrap();
        assert_eq!(second.numbers, [5, 4, 3, 2]);
        assert_eq!(query(json!({"anchor": "M77"})), Err("anchorNotFound"));
        assert_eq!(query(json!({"position": -2})).unwrap().numbers, [2, 1]);
    }
}
