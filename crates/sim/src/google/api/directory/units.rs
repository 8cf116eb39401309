//! The directory API's organisational units: those that have people, and their ancestors.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::query::is_below;
use super::{BoxedResponse, DirectoryRequest, not_found, paging};
use crate::opaque_token;
use crate::people::Organisation;
use crate::response::SimResponse;

const ROOT: &str = "/";

fn id(path: &str) -> String {
    format!("id:03{:011x}", opaque_token::checksum(5, path) >> 20)
}

fn above(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => ROOT,
        Some((above, _)) => above,
    }
}

fn show(path: &str) -> Value {
    json!({
        "kind": "admin#directory#orgUnit",
        "etag": format!("\"{:016x}\"", opaque_token::checksum(6, path)),
        "name": path.rsplit('/').next().unwrap_or_default(),
        "orgUnitPath": path,
        "orgUnitId": id(path),
        "parentOrgUnitPath": above(path),
        "parentOrgUnitId": id(above(path)),
    })
}

/// Lists the children or all descendants of a unit. Google does not page this listing.
pub fn list(request: &DirectoryRequest<'_>, organisation: &Organisation) -> Result<SimResponse, BoxedResponse> {
    let mut all = BTreeSet::new();
    for (_, person) in organisation.present() {
        let mut path = person.unit.as_str();
        while path != ROOT && all.insert(path) {
            path = above(path);
        }
    }
    let start = request.call.query("orgUnitPath").filter(|path| !path.is_empty()).unwrap_or(ROOT);
    if start != ROOT && !all.contains(start) {
        return Err(not_found("orgUnitPath"));
    }
    let units = all
        .into_iter()
        .filter(|path| match request.call.query("type") {
            Some("all") => is_below(path, start) && *path != start,
            Some("allIncludingParent") => is_below(path, start),
            _ => above(path) == start,
        })
        .map(show)
        .collect();
    Ok(paging::answer("admin#directory#orgUnits", "organizationUnits", units, None))
}
