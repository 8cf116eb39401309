//! Organisational units: those that somebody is in, and those above them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::query::is_below;
use super::{Asked, Refused, not_found, page};
use crate::answer::Answer;
use crate::opaque;
use crate::people::Organisation;

const ROOT: &str = "/";

fn id(path: &str) -> String {
    format!("id:03{:011x}", opaque::sum(5, path) >> 20)
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
        "etag": format!("\"{:016x}\"", opaque::sum(6, path)),
        "name": path.rsplit('/').next().unwrap_or_default(),
        "orgUnitPath": path,
        "orgUnitId": id(path),
        "parentOrgUnitPath": above(path),
        "parentOrgUnitId": id(above(path)),
    })
}

/// Right below the one that is named, or all below it. Google tells no pages here.
pub fn list(asked: &Asked<'_>, organisation: &Organisation) -> Result<Answer, Refused> {
    let mut all = BTreeSet::new();
    for (_, person) in organisation.present() {
        let mut path = person.unit.as_str();
        while path != ROOT && all.insert(path) {
            path = above(path);
        }
    }
    let start = asked.call.query("orgUnitPath").filter(|path| !path.is_empty()).unwrap_or(ROOT);
    if start != ROOT && !all.contains(start) {
        return Err(not_found("orgUnitPath"));
    }
    let is_wanted = |path: &&str| match asked.call.query("type") {
        Some("all") => is_below(path, start) && *path != start,
        Some("allIncludingParent") => is_below(path, start),
        _ => above(path) == start,
    };
    let units = all.into_iter().filter(is_wanted).map(show).collect();
    Ok(page::answer("admin#directory#orgUnits", "organizationUnits", units, None))
}
