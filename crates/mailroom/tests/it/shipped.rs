//! What is built into the program that people get: no failpoint and no testing code, and without its feature `lab` neither
//! benchmarks nor simulators. `make test-shipped` looks into the program itself.

use std::collections::BTreeMap;
use std::process::Command;

/// Lists the crates of the program with their features, as cargo resolves them for a build of `mailroom` alone.
fn linked_crates(args: &[&str]) -> BTreeMap<String, Vec<String>> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "-p", "mailroom", "-e", "normal,build"])
        .args(["--prefix", "none", "--no-dedupe", "-f", "{p} |{f}"])
        .args(args)
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let mut crates = BTreeMap::new();
    for line in String::from_utf8(tree.stdout).unwrap().lines() {
        let (package, features) = line.split_once('|').unwrap();
        let name = package.split(' ').next().unwrap().to_owned();
        let features = features.split(',').filter(|feature| !feature.is_empty()).map(str::to_owned);
        crates.entry(name).or_insert_with(Vec::new).extend(features);
    }
    crates
}

#[test]
fn shipped_program_has_no_testing_code() {
    let crates = linked_crates(&[]);
    assert!(crates.contains_key("store") && crates.contains_key("lab"), "{crates:?}");
    assert!(!crates.contains_key("testkit"), "{crates:?}");
    for (name, features) in &crates {
        assert!(!features.iter().any(|feature| feature == "testing"), "{name}: {features:?}");
    }
}

#[test]
fn program_without_lab_has_no_benchmarks_or_simulators() {
    let crates = linked_crates(&["--no-default-features"]);
    assert!(!crates.contains_key("lab") && !crates.contains_key("sim"), "{crates:?}");
    assert!(crates["store"].is_empty(), "{:?}", crates["store"]);
}
