//! Real mail from many sources. It is not ours to ship, so it lies beside the repository where there is one.

use std::collections::BTreeSet;

use crate::installation::on_each_database;

#[test]
fn every_corpus_file_is_stored() {
    let corpus = std::path::absolute("../../../shared/corpus").unwrap();
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

    on_each_database(|mailroom| {
        let done = mailroom.run(&[
            "import",
            corpus.to_str().unwrap(),
            "--tenant",
            "acme",
            "--mailbox",
            "me@acme.test",
            "--json",
        ]);

        assert_eq!(done.stderr, "Created tenant acme.\n");
        let summary = done.objects().remove(0);
        let [read, stored, duplicates, failed] =
            ["read", "stored", "duplicates", "failed"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(failed, 0);
        assert_eq!(read, stored + duplicates);
        assert!(read >= files.len() as u64, "{summary}");
        // Files that are one message are known by the hash of the file.
        let ids: BTreeSet<String> = mailroom.select("select provider_message_id from ledger").into_iter().collect();
        assert_eq!(ids.len() as u64, stored);
        for (name, sha256) in &files {
            let holds_several = name.ends_with(".mbox") || name.ends_with(".emlx");
            assert!(holds_several || ids.contains(&format!("sha256:{sha256}")), "{name} is not stored");
        }
        mailroom.assert_whole();
    });
}
