//! Pages of directory listings. Page tokens are valid for three days.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::super::faults::GoogleFaultKind;
use super::{BoxedResponse, DirectoryRequest, invalid};
use crate::opaque_token;
use crate::response::SimResponse;

const PAGE_TOKEN_LIFETIME_MS: i64 = 3 * 24 * 3_600_000;

#[derive(Debug, Serialize, Deserialize)]
struct PageToken {
    /// The listing that the token belongs to, with its options.
    of: String,
    last: u64,
    #[serde(rename = "told")]
    reported: usize,
    issued_ms: i64,
}

/// Returns the numbers of the next page, and the token of the page after it.
pub fn next(
    request: &DirectoryRequest<'_>,
    all: &[u64],
    sizes: (usize, usize),
) -> Result<(Vec<u64>, Option<String>), BoxedResponse> {
    let (usual, most) = sizes;
    let size = match request.call.query("maxResults").map(str::parse::<usize>) {
        None => usual,
        Some(Ok(size)) if (1..=most).contains(&size) => size,
        Some(_) => return Err(invalid("maxResults")),
    };
    let options = request.call.queries().filter(|(name, _)| !matches!(*name, "pageToken" | "maxResults" | "fields"));
    let of = format!("{} {:?} {}", request.call.method.id, options.collect::<Vec<_>>(), request.mailbox.id);
    let now_ms = request.world.now_ms();
    let before = match request.call.query("pageToken") {
        None => 0,
        Some(word) => {
            let token = opaque_token::decode::<PageToken>(7, word).filter(|token| token.of == of);
            let token = token
                .filter(|token| now_ms - token.issued_ms < PAGE_TOKEN_LIFETIME_MS)
                .ok_or_else(|| invalid("pageToken"))?;
            // If the last item is gone, the page goes on at its position.
            all.iter().position(|number| *number == token.last).map_or(token.reported, |at| at + 1)
        }
    };
    let before = before.min(all.len());
    let size = if request.faults.contains(&GoogleFaultKind::EmptyPage) { 0 } else { size };
    let end = (before + size).min(all.len());
    let last = end.checked_sub(1).and_then(|at| all.get(at)).copied().unwrap_or_default();
    let token =
        (end < all.len()).then(|| opaque_token::encode(7, &PageToken { of, last, reported: end, issued_ms: now_ms }));
    Ok((all[before..end].to_vec(), token))
}

/// Builds a listing's response. Like Google, it leaves out an empty list.
pub fn answer(kind: &str, name: &str, items: Vec<Value>, token: Option<String>) -> SimResponse {
    let mut body =
        json!({"kind": kind, "etag": format!("\"{:016x}\"", opaque_token::checksum(0, &json!(items).to_string()))});
    if !items.is_empty() {
        body[name] = json!(items);
    }
    if let Some(token) = token {
        body["nextPageToken"] = json!(token);
    }
    SimResponse::json(body)
}
