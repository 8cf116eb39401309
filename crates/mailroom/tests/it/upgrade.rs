//! Databases that earlier schemas made are brought up to date, and everything in them is still there.
//! `scripts/make-upgrade-fixture.sh` makes one per released schema.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::mail::{hashes, simple, stored_hashes};
use crate::place::{Done, Place, files_below};

/// What the fixtures were filled with, in the order of the script.
const IMPORTS: [(&str, &str, &str, &str); 5] = [
    ("acme.mbox", "acme", "me@acme.test", "INBOX"),
    ("acme.mbox", "acme", "me@acme.test", "Archive/2024"),
    ("flagged.mbox", "acme", "me@acme.test", "INBOX"),
    ("odd.eml", "acme", "other@acme.test", "INBOX"),
    ("beta.mbox", "beta", "you@beta.test", "beta"),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/upgrade")
}

/// By the schema that made them.
fn databases() -> BTreeMap<u32, PathBuf> {
    let folders = fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let version = |folder: &Path| folder.file_name()?.to_str()?.strip_prefix("schema-")?.parse().ok();
    folders.filter_map(|folder| Some((version(&folder)?, folder))).collect()
}

fn facts(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Later schemas may say more, never something else.
fn assert_says(actual: &Value, expected: &Value, path: &str) {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            for (name, value) in expected {
                let path = format!("{path}.{name}");
                assert_says(actual.get(name).unwrap_or_else(|| panic!("{path} is gone")), value, &path);
            }
        }
        (Value::Array(actual), Value::Array(expected)) => {
            assert_eq!(actual.len(), expected.len(), "{path}");
            for (n, (actual, expected)) in actual.iter().zip(expected).enumerate() {
                assert_says(actual, expected, &format!("{path}[{n}]"));
            }
        }
        _ => assert_eq!(actual, expected, "{path}"),
    }
}

fn assert_facts(place: &Place, fixture: &Path) {
    let lists: [(&str, &[&str]); 5] = [
        ("totals.jsonl", &["verify"]),
        ("tenants.jsonl", &["tenant", "list"]),
        ("keys-acme.jsonl", &["key", "list", "--tenant", "acme"]),
        ("emails-acme.jsonl", &["search", "", "--tenant", "acme", "--full"]),
        ("emails-beta.jsonl", &["search", "", "--tenant", "beta", "--full"]),
    ];
    for (file, args) in lists {
        let expected = facts(&fixture.join(file));
        assert!(!expected.is_empty(), "{file}");
        assert_says(&place.objects(args).into(), &expected.into(), file);
    }
}

fn assert_exports(place: &Place, tenant: &str, expected: &[Value]) {
    let out = format!("exported-{tenant}");
    place.ok(&["export", "--tenant", tenant, "--format", "eml", "--out", &out]);
    let files: Vec<Vec<u8>> = files_below(&place.path(&out)).into_iter().map(|file| fs::read(file).unwrap()).collect();
    assert_eq!(files.len(), expected.len());
    assert_eq!(hashes(&files), stored_hashes(expected));
}

fn is_as_it_was(place: &Place, fixture: &Path) {
    place.assert_whole();
    assert_facts(place, fixture);
    for tenant in ["acme", "beta"] {
        assert_exports(place, tenant, &facts(&fixture.join(format!("emails-{tenant}.jsonl"))));
    }
}

fn takes_new_mail_and_no_old(place: &Place, fixture: &Path) {
    for (file, tenant, mailbox, folder) in IMPORTS {
        let file = fixtures().join("mail").join(file).into_os_string().into_string().unwrap();
        let again = place.object(&["import", &file, "--tenant", tenant, "--mailbox", mailbox, "--folder", folder]);
        assert_eq!(again["stored"], 0, "{file}: {again}");
        assert_eq!(again["duplicates"], again["read"], "{file}: {again}");
    }
    assert_facts(place, fixture);

    let summary = place.import(&place.write("new.eml", simple("After the upgrade", "zyzzogeton")));
    assert_eq!(summary["stored"], 1);
    assert_eq!(place.objects(&["search", "zyzzogeton", "--tenant", "acme"]).len(), 1);
    assert!(place.objects(&["search", "zyzzogeton", "--tenant", "beta"]).is_empty());
    place.assert_whole();
}

fn copy_blobs(place: &Place, fixture: &Path) {
    fs::create_dir_all(place.data_dir()).unwrap();
    let copied = Done::of(Command::new("cp").arg("-r").arg(fixture.join("blobs")).arg(place.data_dir()));
    assert_eq!(copied.code, Some(0), "{copied}");
}

fn load_sqlite(fixture: &Path) -> Place {
    let place = Place::sqlite();
    copy_blobs(&place, fixture);
    // Not as what our program says: a schema may have any word in it.
    let database = Command::new("gzip").arg("-dc").arg(fixture.join("mailroom.db.gz")).output().unwrap();
    assert!(database.status.success(), "{}", String::from_utf8_lossy(&database.stderr));
    fs::write(place.data_dir().join("mailroom.db"), database.stdout).unwrap();
    place
}

fn load_postgres(version: u32, fixture: &Path) -> Place {
    // Roles belong to the server and are in no dump of a database; any Mailroom on it makes them.
    drop(Place::postgres());
    let place = Place::empty_postgres();
    copy_blobs(&place, fixture);
    // From schema 3 on, everything belongs to a role of Mailroom's; before, to the login. Owners are in no fixture.
    let login = store::testing::LOGIN;
    let owner = if version < 3 { login } else { "mailroom_system" };
    place.sql(&fs::read_to_string(fixture.join("dump.sql")).unwrap());
    place.sql(&format!(
        "do $$ declare name text; begin
             for name in select oid::regclass from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') loop
                 execute format('alter table %s owner to {owner}', name);
             end loop;
             for name in select oid::regprocedure from pg_proc where pronamespace = 'public'::regnamespace loop
                 execute format('alter function %s owner to {owner}', name);
             end loop;
             grant select, insert on public.schema_migrations to {login};
         end $$"
    ));
    place
}

#[test]
fn every_released_schema_has_its_data() {
    let databases = databases();
    for version in 1..store::migrate::known() {
        assert!(
            databases.contains_key(&version),
            "there is no data of schema {version}: check out its last commit and run scripts/make-upgrade-fixture.sh"
        );
    }
}

#[test]
fn sqlite_databases_of_every_schema_are_brought_up_to_date() {
    for folder in databases().into_values() {
        let place = load_sqlite(&folder.join("sqlite"));

        is_as_it_was(&place, &folder.join("sqlite"));
        takes_new_mail_and_no_old(&place, &folder.join("sqlite"));
    }
}

#[test]
fn postgresql_databases_of_every_schema_are_brought_up_to_date() {
    for (version, folder) in databases() {
        let place = load_postgres(version, &folder.join("postgres"));

        if version < store::migrate::known() {
            let says = [&format!("schema is version {version}"), "run `mailroom migrate`"];
            place.run(&["search", "", "--tenant", "acme"]).assert_refused(1, &says);
        }
        place.ok(&["migrate"]);

        is_as_it_was(&place, &folder.join("postgres"));
        takes_new_mail_and_no_old(&place, &folder.join("postgres"));
    }
}
