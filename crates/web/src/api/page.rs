//! Lists come in pages.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;

const USUAL: u64 = 50;
const MOST: u64 = 500;

#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins; null when this is the last one.
    pub next_cursor: Option<String>,
}

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// What the page before gave as `next_cursor`.
    cursor: Option<String>,
}

impl Paging {
    pub fn limit(&self) -> Result<u64, Problem> {
        limit(self.limit)
    }

    /// The last item of the page before.
    pub fn after<Id: FromStr>(&self) -> Result<Option<Id>, Problem> {
        let read = |cursor: &String| cursor.parse().map_err(|_| Problem::invalid("cursor", "no list gave this"));
        self.cursor.as_ref().map(read).transpose()
    }
}

pub fn limit(given: Option<u64>) -> Result<u64, Problem> {
    match given.unwrap_or(USUAL) {
        0 => Err(Problem::invalid("limit", "it is at least 1")),
        limit if limit > MOST => Err(Problem::invalid("limit", format!("it is at most {MOST}"))),
        limit => Ok(limit),
    }
}

impl<T> Page<T> {
    /// Of one item more than fits, which only tells that there is another page.
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
