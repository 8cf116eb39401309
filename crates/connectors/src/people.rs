//! What the people of every directory have in common.

use std::collections::HashSet;

use domain::address::canonical;

/// In canonical case, each once, without the one that they write from.
pub fn aliases<'a>(addresses: impl Iterator<Item = &'a str>, primary: Option<&str>) -> Vec<String> {
    let mut aliases: Vec<String> =
        addresses.filter_map(canonical).filter(|alias| Some(alias.as_str()) != primary).collect();
    aliases.sort_unstable();
    aliases.dedup();
    aliases
}

/// Of those that a page tells of twice, the last.
pub fn once<T>(all: &mut Vec<T>, id: impl Fn(&T) -> &String) {
    let mut known = HashSet::new();
    all.reverse();
    all.retain(|one| known.insert(id(one).clone()));
    all.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_told_once_and_is_not_the_address() {
        let given = ["B@acme.test", "a@acme.test", "b@acme.test", "no address", "ann@acme.test"];
        assert_eq!(aliases(given.into_iter(), Some("ann@acme.test")), ["a@acme.test", "b@acme.test"]);
    }

    #[test]
    fn who_is_told_of_twice_is_as_told_last() {
        let mut all = vec![("1".to_owned(), 'a'), ("2".to_owned(), 'b'), ("1".to_owned(), 'c')];
        once(&mut all, |one| &one.0);
        assert_eq!(all, [("2".to_owned(), 'b'), ("1".to_owned(), 'c')]);
    }
}
