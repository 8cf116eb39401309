//! Real mail from many sources. It is not ours to ship, so it lies beside the repository where there is one.

use std::collections::BTreeSet;
use std::path::Path;

use crate::place::on_each_database;

#[test]
fn every_file_of_the_corpus_is_stored() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let Ok(manifest) = std::fs::read_to_string(corpus.join("manifest.tsv")) else {
        println!("there is no corpus at {}; nothing to import", corpus.display());
        return;
    };
    let files: Vec<(&str, &str)> = manifest
        .lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split('\t');
            (columns.next().unwrap(), columns.next().unwrap())
        })
        .collect();

    on_each_database(|place| {
        let done =
            place.run(&["import", corpus.to_str().unwrap(), "--tenant", "acme", "--mailbox", "me@acme.test", "--json"]);

        assert_eq!(done.stderr, "Made tenant acme.\n");
        let summary = done.objects().remove(0);
        let count = |name: &str| summary[name].as_u64().unwrap();
        assert_eq!(count("failed"), 0);
        assert_eq!(count("read"), count("stored") + count("duplicates"));
        assert!(count("read") >= files.len() as u64, "{summary}");
        // Files that are one message are known by the hash of the file.
        let stored: BTreeSet<String> = place.select("select provider_message_id from ledger").into_iter().collect();
        assert_eq!(stored.len() as u64, count("stored"));
        for (name, sha256) in &files {
            let holds_several = name.ends_with(".mbox") || name.ends_with(".emlx");
            assert!(holds_several || stored.contains(&format!("sha256:{sha256}")), "{name} is not stored");
        }
        place.assert_whole();
    });
}
