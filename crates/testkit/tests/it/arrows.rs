//! Keeps the arrows between the modules of a crate to those of ARCHITECTURE, "Rooms": no cycle, and in the engine none that
//! is not declared here.
//!
//! A module is a file or folder right below `src`. What tests alone have is left out: `cfg(test)`, and modules that `lib.rs`
//! declares under a `cfg`. What `lib.rs` re-exports counts as its module's; what it defines itself is everybody's ground.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{SourceFile, source_files};

/// Crates whose modules are free of cycles.
const CRATES_WITHOUT_CYCLES: [&str; 3] = ["engine", "store", "web"];

/// What each module of the engine uses.
const ENGINE_ARROWS: &[(&str, &[&str])] = &[
    ("accounts", &["sync"]),
    ("archive", &["progress"]),
    ("credentials", &["retry_policies"]),
    ("delivery", &["credentials", "retry_policies"]),
    ("directory", &["sync"]),
    ("jobs", &["accounts", "archive", "credentials", "directory", "progress", "retry_policies", "sync"]),
    ("operations", &["accounts", "archive", "credentials", "delivery", "directory", "progress", "sync"]),
    ("storage_health", &["retry_policies"]),
    ("sync", &["archive", "batcher", "credentials", "retry_policies", "storage_health"]),
];

/// Module → the modules it uses, each with the first file that does.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn modules_use_each_other_without_cycles() {
    let files = source_files();

    for name in CRATES_WITHOUT_CYCLES {
        let cycles = cycles(&arrows(name, &files));

        assert!(cycles.is_empty(), "{name}: move what both sides need to one of them:\n{}", cycles.join("\n"));
    }
}

#[test]
fn engine_has_the_declared_arrows() {
    let found = arrows("engine", &source_files());

    let problems = differences(&found, ENGINE_ARROWS);

    assert!(problems.is_empty(), "arrows inside the engine:\n{}", problems.join("\n"));
}

#[test]
fn planted_cycle_is_found() {
    let files = planted_files(&[
        (
            "lib.rs",
            "mod a;\npub mod b;\nmod c;\n#[cfg(test)]\nmod fakes;\npub use c::{Inner, Other as Name};\npub struct Root;\n",
        ),
        (
            "a.rs",
            "use crate::{Root, b::{self, Thing}};\n// crate::c::X\n#[cfg(test)]\nmod tests {\n use crate::c;\n}\n",
        ),
        ("b/mod.rs", "fn f() { crate::Name::new() }\n"),
        ("c.rs", "fn f() -> super::a::X {}\n"),
        ("fakes.rs", "use crate::a;\n"),
    ]);

    let found = arrows("planted", &files);

    assert_eq!(differences(&found, &[("a", &["b"]), ("b", &["c"]), ("c", &["a"])]), Vec::<String>::new());
    assert_eq!(
        cycles(&found),
        ["a → b (crates/planted/src/a.rs), b → c (crates/planted/src/b/mod.rs), c → a (crates/planted/src/c.rs)"]
    );
}

#[test]
fn planted_arrow_is_found() {
    let files = planted_files(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "use crate::b::Thing;\n"),
        ("b.rs", "pub struct Thing;\n"),
    ]);

    let problems = differences(&arrows("planted", &files), &[("b", &["a"])]);

    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("a → b (crates/planted/src/a.rs) is new"), "{problems:?}");
    assert!(problems[1].starts_with("b → a is gone"), "{problems:?}");
}

fn planted_files(files: &[(&str, &str)]) -> Vec<SourceFile> {
    let planted = files.iter().map(|(path, text)| SourceFile {
        crate_name: "planted".into(),
        path: format!("crates/planted/src/{path}"),
        text: (*text).into(),
    });
    planted.collect()
}

fn arrows(crate_name: &str, files: &[SourceFile]) -> Arrows {
    let src = format!("crates/{crate_name}/src/");
    let mut files: Vec<(&str, &SourceFile)> =
        files.iter().filter_map(|file| Some((file.path.strip_prefix(&src)?, file))).collect();
    files.sort_by_key(|(path, _)| *path);
    let root = files.iter().find(|(path, _)| *path == "lib.rs").expect("a library has a lib.rs").1;
    let modules = declared_modules(&root.text);
    let re_exports = re_exports(&root.text, &modules);
    let mut arrows = Arrows::new();
    for (path, file) in files {
        let place = module_path(path);
        if !modules.contains(place[0]) || place.contains(&"tests") {
            continue;
        }
        for name in names_below_root(&product_text(&file.text, place.len())) {
            let target = modules.get(&name).or_else(|| re_exports.get(&name));
            if let Some(target) = target.filter(|target| *target != place[0]) {
                let used = arrows.entry(place[0].to_owned()).or_default();
                used.entry(target.clone()).or_insert_with(|| file.path.clone());
            }
        }
    }
    arrows
}

/// Returns the modules that `lib.rs` declares under no condition.
fn declared_modules(root: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    let mut is_conditional = false;
    for line in root.lines() {
        let declaration = line.trim_start_matches("pub ").strip_prefix("mod ");
        if let Some(name) = declaration.and_then(|rest| rest.strip_suffix(';')).filter(|_| !is_conditional) {
            modules.insert(name.to_owned());
        }
        is_conditional = line.starts_with("#[cfg(");
    }
    modules
}

/// Returns the names that `lib.rs` re-exports, each with its module.
fn re_exports(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for statement in root.split(';').map(str::trim_start) {
        let Some((_, path)) = statement.split_once("use ").filter(|_| statement.starts_with("pub")) else { continue };
        let mut words = path.split(|c: char| !is_of_a_name(c)).filter(|word| !word.is_empty());
        let Some(module) = words.next().and_then(|word| modules.get(word)) else { continue };
        names.extend(words.map(|word| (word.to_owned(), module.clone())));
    }
    names
}

/// Returns the module of a file below `src`, such as `["sync", "push"]`.
fn module_path(path: &str) -> Vec<&str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    path.strip_suffix("/mod").unwrap_or(path).split('/').collect()
}

/// Returns the text without comments and without the tests at its end, with paths by `super` that reach the crate's root
/// from this depth beginning with `crate`.
fn product_text(text: &str, depth: usize) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter_map(|line| line.split("//").next()).collect();
    lines.join("\n").replace(&"super::".repeat(depth), "crate::")
}

/// Returns the first name of every path that begins with `crate::`, also of those in braces.
fn names_below_root(text: &str) -> Vec<String> {
    let mut names = vec![];
    for (at, start) in text.match_indices("crate::") {
        if !text[..at].ends_with(is_of_a_name) {
            let rest = &text[at + start.len()..];
            let paths = rest.strip_prefix('{').map_or_else(|| vec![rest], paths_in_braces);
            names.extend(paths.into_iter().map(first_name));
        }
    }
    names
}

/// Splits what follows an opening brace at its commas, up to the closing one.
fn paths_in_braces(rest: &str) -> Vec<&str> {
    let mut paths = vec![];
    let (mut depth, mut from) = (0, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                paths.push(&rest[from..at]);
                from = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    paths
}

fn first_name(path: &str) -> String {
    path.trim_start().chars().take_while(|c| is_of_a_name(*c)).collect()
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns a line for each set of modules that use each other in a circle: the arrows among them.
fn cycles(arrows: &Arrows) -> Vec<String> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|module| (module.as_str(), reached_from(module, arrows))).collect();
    let circles: BTreeSet<Vec<&str>> = arrows
        .keys()
        .filter(|module| reached[module.as_str()].contains(module.as_str()))
        .map(|module| {
            let others = reached[module.as_str()].iter().copied();
            others.filter(|other| reached.get(other).is_some_and(|back| back.contains(module.as_str()))).collect()
        })
        .collect();
    circles.into_iter().map(|circle| describe(&circle, arrows)).collect()
}

fn reached_from<'a>(module: &str, arrows: &'a Arrows) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![module];
    while let Some(module) = open.pop() {
        for target in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(target.as_str()) {
                open.push(target);
            }
        }
    }
    reached
}

fn describe(circle: &[&str], arrows: &Arrows) -> String {
    let among = circle.iter().flat_map(|from| arrows[*from].iter().map(move |(to, file)| (from, to, file)));
    let lines = among.filter(|(_, to, _)| circle.contains(&to.as_str()));
    lines.map(|(from, to, file)| format!("{from} → {to} ({file})")).collect::<Vec<_>>().join(", ")
}

/// Returns a sentence for each arrow that is found or declared alone, saying what to do.
fn differences(found: &Arrows, declared: &[(&str, &[&str])]) -> Vec<String> {
    let allowed: BTreeSet<(&str, &str)> =
        declared.iter().flat_map(|(from, targets)| targets.iter().map(|to| (*from, *to))).collect();
    let mut problems = vec![];
    for (from, targets) in found {
        for (to, file) in targets.iter().filter(|(to, _)| !allowed.contains(&(from.as_str(), to.as_str()))) {
            problems.push(format!(
                "{from} → {to} ({file}) is new: move what it needs below both, or declare it in the table and in ARCHITECTURE"
            ));
        }
    }
    for (from, to) in allowed {
        if !found.get(from).is_some_and(|targets| targets.contains_key(to)) {
            problems.push(format!("{from} → {to} is gone: remove it from the table and from ARCHITECTURE"));
        }
    }
    problems
}
