//! Trace context of jobs, as in the W3C's `traceparent`.

use crate::RandomSource;

/// Makes the `traceparent` of a new trace.
pub fn new_traceparent(random: &dyn RandomSource) -> String {
    format!("00-{:016x}{:016x}-{:016x}-01", random.next_u64(), random.next_u64(), random.next_u64())
}

/// Returns the trace id, which all jobs of a trace share.
pub fn trace_id(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap_or(traceparent)
}
