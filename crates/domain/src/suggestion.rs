//! Suggestions for misspelt names: "did you mean …?"

/// Returns the known name with the smallest edit distance; the first of several.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known.into_iter().min_by_key(|candidate| distance(name, candidate))
}

/// Returns the known name that a typo of at most so many letters, of either case, would make of the given one.
pub fn within<'a>(edits: usize, name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let distances = known.into_iter().map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate));
    distances.filter(|(distance, _)| *distance <= edits).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Computes the Levenshtein distance, one row of the table at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_character_edits() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("databse", "database"), 1);
        assert_eq!(distance("ü", "u"), 1);
    }

    #[test]
    fn typo_is_a_few_letters_of_either_case() {
        assert_eq!(within(2, "acmee", ["beta", "acme"]), Some("acme"));
        assert_eq!(within(2, "ACME Inc", ["acme inc."]), Some("acme inc."));
        assert_eq!(within(2, "acme-new", ["acme"]), None);
    }

    #[test]
    fn nearest_name_wins_and_ties_go_to_the_first() {
        assert_eq!(nearest("databse.url", ["blobs.url", "database.url"]), Some("database.url"));
        assert_eq!(nearest("c", ["a", "b"]), Some("a"));
        assert_eq!(nearest("c", []), None);
    }
}
