//! Pages of a listing, and tokens that lead from one to the next for three days.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::super::faults::Kind;
use super::{Asked, Refused, invalid};
use crate::answer::Answer;
use crate::opaque;

const DAYS_MS: i64 = 3 * 24 * 3_600_000;

#[derive(Debug, Serialize, Deserialize)]
struct Token {
    /// What it is a listing of: with other options it is another one.
    of: String,
    last: u64,
    told: usize,
    issued_ms: i64,
}

/// What comes next of all that there is, by number and in order, and the token for what comes after.
pub fn next(asked: &Asked<'_>, all: &[u64], sizes: (usize, usize)) -> Result<(Vec<u64>, Option<String>), Refused> {
    let (usual, most) = sizes;
    let size = match asked.call.query("maxResults").map(str::parse::<usize>) {
        None => usual,
        Some(Ok(size)) if (1..=most).contains(&size) => size,
        Some(_) => return Err(invalid("maxResults")),
    };
    let options = asked.call.queries().filter(|(name, _)| !matches!(*name, "pageToken" | "maxResults" | "fields"));
    let of = format!("{} {:?} {}", asked.call.method.id, options.collect::<Vec<_>>(), asked.mailbox.id);
    let now_ms = asked.world.now_ms();
    let before = match asked.call.query("pageToken") {
        None => 0,
        Some(word) => {
            let token = opaque::read::<Token>(7, word).filter(|token| token.of == of);
            let token = token.filter(|token| now_ms - token.issued_ms < DAYS_MS).ok_or_else(|| invalid("pageToken"))?;
            // Whoever came last may be gone; then whoever has the place is next.
            all.iter().position(|number| *number == token.last).map_or(token.told, |at| at + 1)
        }
    };
    let before = before.min(all.len());
    let size = if asked.faults.contains(&Kind::EmptyPage) { 0 } else { size };
    let end = (before + size).min(all.len());
    let last = end.checked_sub(1).and_then(|at| all.get(at)).copied().unwrap_or_default();
    let token = (end < all.len()).then(|| opaque::write(7, &Token { of, last, told: end, issued_ms: now_ms }));
    Ok((all[before..end].to_vec(), token))
}

/// An empty list is told by its absence.
pub fn answer(kind: &str, name: &str, items: Vec<Value>, token: Option<String>) -> Answer {
    let mut body = json!({"kind": kind, "etag": format!("\"{:016x}\"", opaque::sum(0, &json!(items).to_string()))});
    if !items.is_empty() {
        body[name] = json!(items);
    }
    if let Some(token) = token {
        body["nextPageToken"] = json!(token);
    }
    Answer::json(body)
}
