//! Keeps the names of the whole workspace to the rules of CONTRIBUTING and `docs/glossary.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sources::{SourceFile, source_files, workspace};

/// The longest name of a test: one claim fits.
const MAX_TEST_NAME_CHARS: usize = 60;

/// So many words a newcomer reads in one go.
const MAX_GLOSSARY_WORDS: usize = 60;

#[test]
fn glossary_is_short_and_names_no_word_twice() {
    let glossary = fs::read_to_string(workspace().join("docs/glossary.md")).unwrap();

    let words = glossary_words(&glossary);

    assert!(!words.is_empty() && words.len() <= MAX_GLOSSARY_WORDS, "{} words", words.len());
    assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len(), "{words:?}");
}

#[test]
fn types_have_names_of_the_trade() {
    let forbidden = forbidden_names();

    let problems: Vec<String> = source_files().iter().flat_map(|file| forbidden_types(file, &forbidden)).collect();

    assert!(problems.is_empty(), "types named by a pronoun, participle or picture:\n{}", problems.join("\n"));
}

#[test]
fn types_are_unique_in_their_crate() {
    let problems = doubled_types(&source_files());

    assert!(problems.is_empty(), "type names that stand for two things:\n{}", problems.join("\n"));
}

#[test]
fn test_names_are_one_claim() {
    let problems: Vec<String> = source_files().iter().flat_map(long_test_names).collect();

    assert!(problems.is_empty(), "test names over {MAX_TEST_NAME_CHARS} characters:\n{}", problems.join("\n"));
}

#[test]
fn planted_names_are_found() {
    let planted = SourceFile {
        crate_name: "planted".into(),
        path: "planted.rs".into(),
        text: format!(
            "pub struct Told {{}}\nenum Lease {{}}\nmod inner {{\n    pub(crate) enum Lease {{}}\n}}\n// struct Wanted;\n#[tokio::test]\nasync fn {}() {{}}\n",
            "a".repeat(MAX_TEST_NAME_CHARS + 1)
        ),
    };

    assert_eq!(forbidden_types(&planted, &forbidden_names()), ["planted.rs:1: Told"]);
    assert_eq!(doubled_types(std::slice::from_ref(&planted)), ["planted: Lease: planted.rs:2, planted.rs:4"]);
    assert_eq!(long_test_names(&planted).len(), 1);
}

fn glossary_words(glossary: &str) -> Vec<String> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let words = rows.filter_map(|row| row.split(" | ").next()).flat_map(|cell| cell.split(", "));
    words.map(|word| word.trim().to_owned()).collect()
}

fn forbidden_names() -> BTreeSet<String> {
    let glossary = fs::read_to_string(workspace().join("docs/glossary.md")).unwrap();
    let block = glossary.split("```").nth(1).expect("a fenced block with the names that no type may have");
    let names: BTreeSet<String> = block.split_whitespace().filter(|word| *word != "text").map(str::to_owned).collect();
    assert!(names.contains("Told") && names.len() > 20, "{names:?}");
    names
}

/// The types that a file defines, with their lines. Associated types are not counted: traits name those.
fn defined_types(file: &SourceFile) -> Vec<(usize, &str)> {
    let mut found = vec![];
    for (index, line) in file.text.lines().enumerate() {
        let is_indented = line.starts_with(' ');
        let rest = without_visibility(line.trim_start());
        let Some((keyword, rest)) = rest.split_once(' ') else { continue };
        let defines = matches!(keyword, "struct" | "enum" | "trait" | "union") || (keyword == "type" && !is_indented);
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if defines && rest.starts_with(char::is_uppercase) {
            found.push((index + 1, &rest[..end]));
        }
    }
    found
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    match rest.strip_prefix('(').and_then(|rest| rest.split_once(") ")) {
        Some((_, rest)) => rest,
        None => rest.trim_start(),
    }
}

fn forbidden_types(file: &SourceFile, forbidden: &BTreeSet<String>) -> Vec<String> {
    let types = defined_types(file).into_iter();
    let bad = types.filter(|(_, name)| forbidden.contains(*name) || is_bare_participle(name));
    bad.map(|(line, name)| format!("{}:{line}: {name}", file.path)).collect()
}

/// One word that ends in "ed", such as `Refused`; nouns like that are few and named here.
fn is_bare_participle(name: &str) -> bool {
    const NOUNS: [&str; 3] = ["Embed", "Feed", "Seed"];
    let is_one_word = !name[1..].contains(char::is_uppercase);
    is_one_word && name.ends_with("ed") && !NOUNS.contains(&name)
}

fn doubled_types(files: &[SourceFile]) -> Vec<String> {
    let mut places: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for file in files {
        for (line, name) in defined_types(file) {
            places.entry((&file.crate_name, name)).or_default().push(format!("{}:{line}", file.path));
        }
    }
    let doubled = places.into_iter().filter(|(_, places)| places.len() > 1);
    doubled.map(|((crate_name, name), places)| format!("{crate_name}: {name}: {}", places.join(", "))).collect()
}

fn long_test_names(file: &SourceFile) -> Vec<String> {
    let mut long = vec![];
    let mut is_test = false;
    for line in file.text.lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let Some((before, rest)) = line.split_once("fn ") else { continue };
        if is_test && (before.is_empty() || before == "async ") {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            if name.len() > MAX_TEST_NAME_CHARS {
                long.push(format!("{}: {name}", file.path));
            }
            is_test = false;
        }
    }
    long
}
