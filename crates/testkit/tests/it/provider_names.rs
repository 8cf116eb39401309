//! Keeps `web` and `engine` free of providers: what is theirs is in their folders, which declare it.

use crate::sources::{SourceFile, source_files};

const PROVIDER_WORDS: [&str; 6] = ["gmail", "google", "graph", "imap", "microsoft", "outlook"];

#[test]
fn web_and_engine_name_no_provider() {
    let files = source_files();
    let files = files.iter().filter(|file| is_checked(file));

    let problems: Vec<String> = files.flat_map(named_providers).collect();

    assert!(problems.is_empty(), "providers named outside of their folder:\n{}", problems.join("\n"));
}

#[test]
fn planted_provider_names_are_found() {
    let planted = [
        "//! Gmail is fine here.\nlet x = ImapFields; // and Outlook here",
        "match GOOGLE_URL {",
        "is_ascii_graphic(\"paragraph\")",
        "#[schema(example = \"gmail\")]",
        "format!(\"at {outlook}\")",
        "#[cfg(test)]",
        "mod tests {\n    Provider::Imap",
    ];
    let file = SourceFile { crate_name: "web".into(), path: "x.rs".into(), text: planted.join("\n") };

    assert_eq!(named_providers(&file), ["x.rs:2: imap", "x.rs:3: google", "x.rs:6: outlook"]);
}

fn is_checked(file: &SourceFile) -> bool {
    let is_source = ["crates/web/src/", "crates/engine/src/"].iter().any(|folder| file.path.starts_with(folder));
    is_source && !file.path.ends_with("/tests.rs")
}

/// The lines of code that name a provider, up to the unit tests. Comments and attributes that only describe are no code.
fn named_providers(file: &SourceFile) -> Vec<String> {
    let mut found = vec![];
    for (index, line) in file.text.lines().enumerate() {
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        let code = line.split_once("//").map_or(line, |(code, _)| code);
        if code.trim_start().starts_with("#[schema(") || code.trim_start().starts_with("#[param(") {
            continue;
        }
        let words = words(code);
        let named = PROVIDER_WORDS.iter().filter(|name| words.iter().any(|word| word == *name));
        found.extend(named.map(|name| format!("{}:{}: {name}", file.path, index + 1)));
    }
    found
}

/// The words of identifiers and texts, in lower case: `GmailPush` and `gmail_push` have two.
fn words(code: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in code.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && was_lower) {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric() {
            words.last_mut().expect("it begins with one").push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase();
    }
    words
}
