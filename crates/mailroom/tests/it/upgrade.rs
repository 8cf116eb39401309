//! Databases that earlier schemas made are brought up to date, and everything in them is still there.
//! `scripts/make-upgrade-fixture.sh` makes one per released schema.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::installation::{CommandOutput, TestInstallation, files_below};
use crate::mail::{hashes, simple, stored_hashes};

/// What the fixtures were filled with, in the order of the script.
const IMPORTS: [(&str, &str, &str, &str); 5] = [
    ("acme.mbox", "acme", "me@acme.test", "INBOX"),
    ("acme.mbox", "acme", "me@acme.test", "Archive/2024"),
    ("flagged.mbox", "acme", "me@acme.test", "INBOX"),
    ("odd.eml", "acme", "other@acme.test", "INBOX"),
    ("beta.mbox", "beta", "you@beta.test", "beta"),
];

fn fixtures() -> PathBuf {
    Path::new("../../fixtures/upgrade").canonicalize().unwrap()
}

/// Returns the archives by the schema that made them.
fn archives() -> BTreeMap<u32, PathBuf> {
    let files = fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    files.filter_map(|file| Some((schema_version(&file)?, file))).collect()
}

fn schema_version(file: &Path) -> Option<u32> {
    file.file_name()?.to_str()?.strip_prefix("schema-")?.strip_suffix(".tar.xz")?.parse().ok()
}

/// Unpacks an archive and returns its folder, which is removed when it is dropped.
fn unpack(archive: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    let unpacked =
        CommandOutput::of(tar.arg("-xJf").arg(archive).arg("--strip-components=1").arg("-C").arg(folder.path()));
    assert_eq!(unpacked.code, Some(0), "{unpacked}");
    folder
}

fn facts(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Fails unless `actual` says all that is expected; later schemas may say more.
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

fn assert_facts(mailroom: &TestInstallation, fixture: &Path) {
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
        assert_says(&mailroom.objects(args).into(), &expected.into(), file);
    }
}

fn assert_exports(mailroom: &TestInstallation, tenant: &str, expected: &[Value]) {
    let out = format!("exported-{tenant}");
    mailroom.ok(&["export", "--tenant", tenant, "--format", "eml", "--out", &out]);
    let files: Vec<Vec<u8>> =
        files_below(&mailroom.path(&out)).into_iter().map(|file| fs::read(file).unwrap()).collect();
    assert_eq!(files.len(), expected.len());
    assert_eq!(hashes(&files), stored_hashes(expected));
}

fn is_as_it_was(mailroom: &TestInstallation, fixture: &Path) {
    mailroom.assert_whole();
    assert_facts(mailroom, fixture);
    for tenant in ["acme", "beta"] {
        assert_exports(mailroom, tenant, &facts(&fixture.join(format!("emails-{tenant}.jsonl"))));
    }
}

fn takes_new_mail_and_no_old(mailroom: &TestInstallation, fixture: &Path) {
    for (file, tenant, mailbox, folder) in IMPORTS {
        let file = fixtures().join("mail").join(file).into_os_string().into_string().unwrap();
        let again = mailroom.object(&["import", &file, "--tenant", tenant, "--mailbox", mailbox, "--folder", folder]);
        assert_eq!(again["stored"], 0, "{file}: {again}");
        assert_eq!(again["duplicates"], again["read"], "{file}: {again}");
    }
    assert_facts(mailroom, fixture);

    let summary = mailroom.import(&mailroom.write("new.eml", simple("After the upgrade", "zyzzogeton")));
    assert_eq!(summary["stored"], 1);
    assert_eq!(mailroom.objects(&["search", "zyzzogeton", "--tenant", "acme"]).len(), 1);
    assert!(mailroom.objects(&["search", "zyzzogeton", "--tenant", "beta"]).is_empty());
    mailroom.assert_whole();
}

/// Checks that the rows of old mailboxes may have a provider that no schema knows, but not one without a name.
fn takes_any_provider(mailroom: &TestInstallation) {
    mailroom.sql("update mailboxes set provider = 'pigeon'; update mailboxes set provider = 'files'");
    assert!(mailroom.try_sql("update mailboxes set provider = ''").is_err());
}

fn copy_blobs(mailroom: &TestInstallation, fixture: &Path) {
    fs::create_dir_all(mailroom.data_dir()).unwrap();
    let copied = CommandOutput::of(Command::new("cp").arg("-r").arg(fixture.join("blobs")).arg(mailroom.data_dir()));
    assert_eq!(copied.code, Some(0), "{copied}");
}

fn load_sqlite(fixture: &Path) -> TestInstallation {
    let mailroom = TestInstallation::sqlite();
    copy_blobs(&mailroom, fixture);
    // Not as what our program says: a schema may have any word in it.
    let database = Command::new("gzip").arg("-dc").arg(fixture.join("mailroom.db.gz")).output().unwrap();
    assert!(database.status.success(), "{}", String::from_utf8_lossy(&database.stderr));
    fs::write(mailroom.data_dir().join("mailroom.db"), database.stdout).unwrap();
    mailroom
}

fn load_postgres(version: u32, fixture: &Path) -> TestInstallation {
    // Roles belong to the server and are in no dump of a database; any Mailroom on it makes them.
    drop(TestInstallation::postgres());
    let mailroom = TestInstallation::empty_postgres();
    copy_blobs(&mailroom, fixture);
    // From schema 3 on, everything belongs to a role of Mailroom's; before, to the login. Owners are in no fixture.
    let login = store::testing::LOGIN;
    let owner = if version < 3 { login } else { "mailroom_system" };
    mailroom.sql(&fs::read_to_string(fixture.join("dump.sql")).unwrap());
    mailroom.sql(&format!(
        "do $$ declare name text; begin
             for name in select oid::regclass from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v') loop
                 execute format('alter table %s owner to {owner}', name);
             end loop;
             for name in select oid::regprocedure from pg_proc where pronamespace = 'public'::regnamespace loop
                 execute format('alter function %s owner to {owner}', name);
             end loop;
             grant select, insert on public.schema_migrations to {login};
         end $$"
    ));
    mailroom
}

#[test]
fn every_released_schema_has_its_data() {
    let archives = archives();
    for version in 1..store::migrate::latest_version() {
        assert!(
            archives.contains_key(&version),
            "there is no data of schema {version}: check out its last commit and run scripts/make-upgrade-fixture.sh"
        );
    }
}

#[test]
fn every_sqlite_schema_is_upgraded() {
    for archive in archives().into_values() {
        let folder = unpack(&archive);
        let fixture = folder.path().join("sqlite");
        let mailroom = load_sqlite(&fixture);

        is_as_it_was(&mailroom, &fixture);
        takes_new_mail_and_no_old(&mailroom, &fixture);
        takes_any_provider(&mailroom);
    }
}

#[test]
fn every_postgresql_schema_is_upgraded() {
    for (version, archive) in archives() {
        let folder = unpack(&archive);
        let fixture = folder.path().join("postgres");
        let mailroom = load_postgres(version, &fixture);

        if version < store::migrate::latest_version() {
            let says = [&format!("schema is version {version}"), "run `mailroom migrate`"];
            mailroom.run(&["search", "", "--tenant", "acme"]).assert_refused(1, &says);
        }
        mailroom.ok(&["migrate"]);

        is_as_it_was(&mailroom, &fixture);
        takes_new_mail_and_no_old(&mailroom, &fixture);
        takes_any_provider(&mailroom);
    }
}
