//! Pagination of lists by cursor.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;

const DEFAULT_PAGE_SIZE: u64 = 50;
const MAX_PAGE_SIZE: u64 = 500;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

/// Page size and cursor.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl PageParams {
    pub fn limit(&self) -> Result<u64, Problem> {
        limit(self.limit)
    }

    /// Parses the cursor: the id of the last item on the previous page.
    pub fn after<Id: FromStr>(&self) -> Result<Option<Id>, Problem> {
        self.cursor.as_deref().map(parse_cursor).transpose()
    }
}

pub fn parse_cursor<Id: FromStr>(cursor: &str) -> Result<Id, Problem> {
    cursor.parse().map_err(|_| invalid_cursor())
}

pub fn invalid_cursor() -> Problem {
    Problem::invalid("cursor", "is not a cursor of this list")
}

/// Checks a page size and applies the default.
pub fn limit(given: Option<u64>) -> Result<u64, Problem> {
    match given.unwrap_or(DEFAULT_PAGE_SIZE) {
        0 => Err(Problem::invalid("limit", "must be at least 1")),
        limit if limit > MAX_PAGE_SIZE => Err(Problem::invalid("limit", format!("must be at most {MAX_PAGE_SIZE}"))),
        limit => Ok(limit),
    }
}

impl<T> Page<T> {
    /// Cuts a page from a list that was read with one item more than the limit: that item says whether there is another page.
    pub fn cut<Id: Display>(mut items: Vec<T>, limit: u64, id: impl Fn(&T) -> Id) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| has_more).map(|last| id(last).to_string());
        Self { items, next_cursor }
    }

    pub fn map<U>(self, each: impl Fn(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(each).collect(), next_cursor: self.next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::Query;

    #[test]
    fn invalid_parameters_are_named() {
        for (query, detail) in [
            ("limit=x", "limit: must be a whole number, 0 or more"),
            ("limit=", "limit: must be a whole number, 0 or more"),
            ("limit=1&limit=2", "limit: is given twice"),
            ("page=1", "page: is not a parameter of this request"),
        ] {
            let uri = format!("/v1/mailboxes?{query}").parse().unwrap();
            let refused = Query::<PageParams>::try_from_uri(&uri).unwrap_err();
            assert_eq!(Problem::from(refused).detail(), detail);
        }
    }
}
