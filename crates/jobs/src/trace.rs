//! The trace that a job belongs to, as in the W3C's `traceparent`.

use crate::Dice;

/// A trace that begins here.
pub fn root(dice: &dyn Dice) -> String {
    format!("00-{:016x}{:016x}-{:016x}-01", dice.bits(), dice.bits(), dice.bits())
}

/// The part that all jobs of a trace share.
pub fn id(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap_or(traceparent)
}
