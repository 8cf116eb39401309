//! Helpers for the people that directories list.

use std::collections::HashSet;

use domain::address::canonical;

/// Returns the addresses in canonical form, each once, without the primary one.
pub fn aliases<'a>(addresses: impl Iterator<Item = &'a str>, primary: Option<&str>) -> Vec<String> {
    let mut aliases: Vec<String> =
        addresses.filter_map(canonical).filter(|alias| Some(alias.as_str()) != primary).collect();
    aliases.sort_unstable();
    aliases.dedup();
    aliases
}

/// Removes all but the last entry of each id.
pub fn keep_last_of_each_id<T>(entries: &mut Vec<T>, id: impl Fn(&T) -> &String) {
    let mut known = HashSet::new();
    entries.reverse();
    entries.retain(|entry| known.insert(id(entry).clone()));
    entries.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_distinct_and_not_the_primary_address() {
        let given = ["B@acme.test", "a@acme.test", "b@acme.test", "no address", "ann@acme.test"];
        assert_eq!(aliases(given.into_iter(), Some("ann@acme.test")), ["a@acme.test", "b@acme.test"]);
    }

    #[test]
    fn last_entry_of_an_id_is_kept() {
        let mut entries = vec![("1".to_owned(), 'a'), ("2".to_owned(), 'b'), ("1".to_owned(), 'c')];
        keep_last_of_each_id(&mut entries, |entry| &entry.0);
        assert_eq!(entries, [("2".to_owned(), 'b'), ("1".to_owned(), 'c')]);
    }
}
