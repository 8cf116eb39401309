//! The record of requests and responses that violate an API description.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The number of violations kept.
const MAX_KEPT_VIOLATIONS: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Request,
    /// A bug of the simulator.
    Response,
    Push,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    pub side: Side,
    /// The method's id, or the route.
    pub what: String,
    pub why: String,
}

#[derive(Debug, Default)]
pub struct Violations(Mutex<Vec<Violation>>);

impl Violations {
    pub fn add(&self, side: Side, what: &str, why: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MAX_KEPT_VIOLATIONS {
            all.push(Violation { side, what: what.to_owned(), why: why.to_owned() });
        }
    }

    pub fn list(&self) -> Vec<Violation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
