//! `backup` and `restore`: during other work, after a crash at any moment, and with damaged backups.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::failpoint::{Effect, VARIABLE};
use store::testing;

use crate::crash::{SeededRandom, random, setting};
use crate::installation::{CommandOutput, PROGRAM, TestInstallation, files_below, on_each_database};
use crate::mail::{mbox, simple};
use crate::processes::{RunningProcess, wait_until, watch_until};

const ROUNDS: u64 = 8;

fn path(mailroom: &TestInstallation, name: &str) -> String {
    mailroom.path(name).into_os_string().into_string().unwrap()
}

fn back_up(mailroom: &TestInstallation) -> Value {
    mailroom.object(&["backup", "--out", &path(mailroom, "backup")])
}

/// Creates another installation on the same kind of database, without a schema.
fn empty(mailroom: &TestInstallation) -> TestInstallation {
    if mailroom.is_sqlite() { TestInstallation::sqlite() } else { TestInstallation::empty_postgres() }
}

fn restore_args(mailroom: &TestInstallation) -> [String; 2] {
    ["restore".to_owned(), path(mailroom, "backup")]
}

fn restore(from: &TestInstallation, to: &TestInstallation) -> CommandOutput {
    let [command, folder] = restore_args(from);
    to.run(&[&command, &folder, "--json"])
}

/// Returns everything that a restored installation must show like the first.
fn facts(mailroom: &TestInstallation) -> Vec<Vec<Value>> {
    let tenants = mailroom.tenants();
    let names: Vec<&str> = tenants.iter().map(|tenant| tenant["name"].as_str().unwrap()).collect();
    let emails = names.iter().map(|name| mailroom.emails(name));
    let keys = names.iter().map(|name| mailroom.objects(&["key", "list", "--tenant", name]));
    let lists: Vec<Vec<Value>> = emails.chain(keys).collect();
    [vec![tenants.clone()], lists].concat()
}

fn fill(mailroom: &TestInstallation, seed: u64, count: usize) {
    mailroom.import(&mailroom.write("some.mbox", mbox(seed, count)));
    mailroom.object(&["import", &path(mailroom, "some.mbox"), "--tenant", "other", "--mailbox", "o@other.test"]);
    mailroom.ok(&["key", "create", "--tenant", "acme", "--name", "ci"]);
}

#[test]
fn restore_brings_back_everything() {
    on_each_database(|mailroom| {
        fill(mailroom, 31, 40);

        let summary = back_up(mailroom);
        let restored = empty(mailroom);
        let done = restore(mailroom, &restored);

        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!((&summary["objects"], &summary["copied"]), (&json!(2), &json!(2)), "{summary}");
        assert_eq!(done.objects()[0]["objects"], 2);
        restored.assert_whole();
        assert_eq!(facts(&restored), facts(mailroom));
        let told =
            "select cast(count(*) as text) from events where type = 'installation.restored' and seq > 1000000000000";
        assert_eq!((restored.select(told), mailroom.select(told)), (vec!["2".to_owned()], vec!["0".to_owned()]));
        restored.ok(&["tenant", "list"]);
        assert_eq!(restored.select(told), ["2"], "they are told once");
        let again = restored.import(&path(mailroom, "some.mbox"));
        assert_eq!((&again["stored"], &again["duplicates"]), (&json!(0), &json!(40)));
        assert_eq!(restored.import(&mailroom.write("new.eml", simple("new", "mail")))["stored"], 1);
        restored.assert_whole();
    });
}

#[test]
fn second_backup_copies_only_changes() {
    on_each_database(|mailroom| {
        fill(mailroom, 32, 10);
        back_up(mailroom);
        mailroom.import(&mailroom.write("more.mbox", mbox(33, 5)));
        let stale = mailroom.path("backup/objects/01a0/packs/00/stale");
        fs::create_dir_all(stale.parent().unwrap()).unwrap();
        fs::write(&stale, "no manifest names me").unwrap();
        let unfinished = mailroom.path("backup/objects/01a0/packs/00/unfinished#1");
        fs::write(&unfinished, "whoever wrote me was kil").unwrap();

        let summary = back_up(mailroom);

        let counts = ["objects", "copied", "removed"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counts, [3, 1, 1], "{summary}");
        assert!(!stale.exists() && !unfinished.exists());
        let names: BTreeSet<String> = names(&mailroom.path("backup"));
        assert_eq!(names.len(), 4, "one database, manifest, lock, objects: {names:?}");
        let unchanged = back_up(mailroom);
        assert_eq!((&unchanged["copied"], &unchanged["removed"]), (&json!(0), &json!(0)));
        let restored = empty(mailroom);
        assert_eq!(restore(mailroom, &restored).code, Some(0));
        restored.assert_whole();
        assert_eq!(facts(&restored), facts(mailroom));
    });
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn permissions(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn backup_is_readable_by_its_owner_only() {
    on_each_database(|mailroom| {
        fill(mailroom, 34, 3);
        back_up(mailroom);

        assert_eq!(permissions(&mailroom.path("backup")), 0o700);
        assert_eq!(permissions(&mailroom.path("backup/objects")), 0o700);
        for name in names(&mailroom.path("backup")).iter().filter(|name| *name != "objects") {
            assert_eq!(permissions(&mailroom.path("backup").join(name)), 0o600, "{name}");
        }
    });
    let mailroom = TestInstallation::sqlite();
    fill(&mailroom, 34, 3);
    back_up(&mailroom);
    let restored = empty(&mailroom);
    assert_eq!(restore(&mailroom, &restored).code, Some(0));
    assert_eq!(permissions(&restored.data_dir()), 0o700);
    assert_eq!(permissions(&restored.data_dir().join("mailroom.db")), 0o600);
}

fn start_import(mailroom: &TestInstallation, file: &str) -> RunningProcess {
    let args = ["import", file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
    RunningProcess::start(mailroom.command(PROGRAM, &args).env("MAILROOM_IMPORT__BATCH_MESSAGES", "8"))
}

/// Backups while an import runs, one of them after the import was killed: each is whole batches and nothing less.
#[test]
fn backup_beside_an_import_is_whole() {
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(35, 160));
        let mut partial = 0;
        for is_killed in [true, false] {
            let mut import = start_import(mailroom, &file);
            let before = mailroom.packs().len();
            watch_until("an import gets somewhere", || import.has_ended() || mailroom.packs().len() > before + 8);
            if is_killed {
                import.kill();
                back_up(mailroom);
            } else {
                back_up(mailroom);
                assert_eq!(import.finish().code, Some(0));
            }

            let restored = empty(mailroom);
            assert_eq!(restore(mailroom, &restored).code, Some(0));

            restored.assert_whole();
            let stored = restored.emails("acme").len();
            assert!(stored > 0 && stored.is_multiple_of(8), "{stored}");
            partial += usize::from(stored < 160);
            assert_eq!(restored.import(&file)["stored"], 160 - stored);
            restored.assert_whole();
        }
        assert!(partial > 0, "every backup was made after the import");
    });
}

/// Waits until so many files are below a folder, and then a little.
fn wait_for_random_point(folder: &Path, files: u64, running: &mut RunningProcess, random: &mut SeededRandom) {
    let (files, a_little) = (random.below(files), Duration::from_micros(random.below(8_000)));
    watch_until("it gets somewhere", || running.has_ended() || files_below(folder).len() as u64 >= files);
    let reached = Instant::now();
    watch_until("a little later", || running.has_ended() || reached.elapsed() >= a_little);
}

fn many_packs(mailroom: &TestInstallation) {
    let file = mailroom.write("all.mbox", mbox(36, 120));
    assert_eq!(start_import(mailroom, &file).finish().code, Some(0));
}

/// The backup before stays whole until the next one is, wherever that is cut off.
fn killed_backups_go_on(mailroom: &TestInstallation) {
    many_packs(mailroom);
    let (mut random, mut killed) = (random(), 0);
    let expected = facts(mailroom);

    for round in 0..setting("MAILROOM_TEST_CHAOS_ROUNDS", ROUNDS) {
        // Half of the rounds begin with nothing, the others with a finished backup and new mail.
        let folder = mailroom.path("backup");
        if round % 2 == 0 && folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        let had_manifest = folder.join("manifest.json").exists();
        let args = ["backup", "--out", folder.to_str().unwrap(), "--json"];
        let mut running = RunningProcess::start(&mut mailroom.command(PROGRAM, &args));
        wait_for_random_point(&folder, 18, &mut running, &mut random);
        killed += u64::from(running.kill().code.is_none());

        let after_kill = empty(mailroom);
        let done = restore(mailroom, &after_kill);
        if folder.join("manifest.json").exists() {
            assert_eq!(done.code, Some(0), "round {round}: {done}");
        } else if folder.exists() {
            assert!(!had_manifest);
            done.assert_refused(1, &["holds no finished backup", "run `mailroom backup --out` to its end"]);
        } else {
            done.assert_refused(1, &["there is no folder"]);
        }

        back_up(mailroom);
        let restored = empty(mailroom);
        assert_eq!(restore(mailroom, &restored).code, Some(0), "round {round}");
        restored.assert_whole();
        assert_eq!(facts(&restored), expected, "round {round}");
        assert_eq!(names(&folder).len(), 4, "round {round}");
        assert_eq!(objects(mailroom).len(), mailroom.packs().len(), "round {round}");
    }
    assert!(killed > 0, "every backup ended before it was killed");
}

#[test]
fn killed_backup_resumes_on_sqlite() {
    killed_backups_go_on(&TestInstallation::sqlite());
}

#[test]
fn killed_backup_resumes_on_postgresql() {
    killed_backups_go_on(&TestInstallation::postgres());
}

fn killed_restores_go_on(mailroom: &TestInstallation) {
    many_packs(mailroom);
    back_up(mailroom);
    let (mut random, mut killed) = (random(), 0);
    let expected = facts(mailroom);

    for round in 0..setting("MAILROOM_TEST_CHAOS_ROUNDS", ROUNDS) {
        let restored = empty(mailroom);
        let [command, folder] = restore_args(mailroom);
        let mut running = RunningProcess::start(&mut restored.command(PROGRAM, &[&command, &folder, "--json"]));
        wait_for_random_point(&restored.data_dir(), 18, &mut running, &mut random);
        killed += u64::from(running.kill().code.is_none());

        let mut done = restore(mailroom, &restored);
        if !mailroom.is_sqlite() {
            // What is left of the killed one may still be at work, and finish it.
            wait_until("the rest of a restore ends", || {
                let is_busy = done.stderr.contains("another restore is running");
                if is_busy {
                    done = restore(mailroom, &restored);
                }
                !is_busy
            });
            if done.stderr.contains("with `mailroom migrate`") {
                done = restored.ok(&["migrate"]);
            }
        }

        assert_eq!(done.code, Some(0), "round {round}: {done}");
        restored.assert_whole();
        assert_eq!(facts(&restored), expected, "round {round}");
        assert!(!restored.data_dir().join("mailroom.db.restoring").exists());
    }
    assert!(killed > 0, "every restore ended before it was killed");
}

#[test]
fn killed_restore_resumes_on_sqlite() {
    killed_restores_go_on(&TestInstallation::sqlite());
}

#[test]
fn killed_restore_resumes_on_postgresql() {
    killed_restores_go_on(&TestInstallation::postgres());
}

fn objects(mailroom: &TestInstallation) -> Vec<PathBuf> {
    files_below(&mailroom.path("backup/objects"))
}

fn database(mailroom: &TestInstallation) -> PathBuf {
    let mut names = names(&mailroom.path("backup")).into_iter();
    mailroom.path("backup").join(names.find(|name| name.starts_with("mailroom-")).unwrap())
}

fn flip_a_bit(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(file, bytes).unwrap();
}

fn cut(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
}

fn edit_manifest(mailroom: &TestInstallation, edit: impl Fn(&mut Value)) {
    let path = mailroom.path("backup/manifest.json");
    let mut manifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn damaged_backup_is_refused() {
    type Damage = (fn(&TestInstallation), &'static [&'static str]);
    let damages: [Damage; 11] = [
        (
            |mailroom| cut(&objects(mailroom)[0]),
            &["the backup is damaged: object", "bytes instead of", "use another backup"],
        ),
        (|mailroom| flip_a_bit(&objects(mailroom)[0]), &["the backup is damaged: object", "does not match its hash"]),
        (|mailroom| fs::remove_file(&objects(mailroom)[0]).unwrap(), &["the backup is damaged: object", "is missing"]),
        (|mailroom| cut(&database(mailroom)), &["the backup is damaged: mailroom-", "bytes instead of"]),
        (|mailroom| flip_a_bit(&database(mailroom)), &["the backup is damaged: mailroom-", "does not match its hash"]),
        (|mailroom| fs::remove_file(database(mailroom)).unwrap(), &["the backup is damaged: mailroom-", "is missing"]),
        (|mailroom| cut(&mailroom.path("backup/manifest.json")), &["is damaged: its manifest.json cannot be read"]),
        (|mailroom| fs::remove_file(mailroom.path("backup/manifest.json")).unwrap(), &["holds no finished backup"]),
        (
            |mailroom| edit_manifest(mailroom, |manifest| manifest["schema_version"] = json!(9999)),
            &["made by a newer Mailroom (schema 9999", "upgrade this program"],
        ),
        (
            |mailroom| edit_manifest(mailroom, |manifest| manifest["format"] = json!(2)),
            &["made by a newer Mailroom; upgrade this program"],
        ),
        (
            |mailroom| edit_manifest(mailroom, |manifest| manifest["objects"][0]["key"] = json!("../../escaped")),
            &["is damaged: its manifest.json cannot be read"],
        ),
    ];
    on_each_database(|mailroom| {
        fill(mailroom, 37, 6);
        for (damage, says) in &damages {
            let _ = fs::remove_dir_all(mailroom.path("backup"));
            back_up(mailroom);
            damage(mailroom);

            let restored = empty(mailroom);
            restore(mailroom, &restored).assert_refused(1, says);

            assert!(!restored.data_dir().join("mailroom.db").exists());
        }
    });
}

/// Objects that are missing or of another size.
#[test]
fn next_backup_replaces_lost_objects() {
    on_each_database(|mailroom| {
        fill(mailroom, 38, 6);
        back_up(mailroom);
        cut(&objects(mailroom)[0]);
        fs::remove_file(&objects(mailroom)[1]).unwrap();

        assert_eq!(back_up(mailroom)["copied"], 2);

        let restored = empty(mailroom);
        assert_eq!(restore(mailroom, &restored).code, Some(0));
        restored.assert_whole();
    });
}

#[test]
fn restore_replaces_nothing() {
    on_each_database(|mailroom| {
        fill(mailroom, 39, 4);
        back_up(mailroom);
        let mine = facts(mailroom);

        let onto_itself = restore(mailroom, mailroom);
        let other = if mailroom.is_sqlite() { TestInstallation::sqlite() } else { TestInstallation::postgres() };
        other.import(&other.write("a.eml", simple("mine", "stays")));
        let onto_other = restore(mailroom, &other);
        let objects = empty(mailroom);
        objects.write("data/blobs/0190/packs/00/pack", "somebody else's");
        let onto_objects = restore(mailroom, &objects);

        let says = if mailroom.is_sqlite() {
            "already exists, and a restore replaces nothing"
        } else {
            "the database at database.url is not empty"
        };
        onto_itself.assert_refused(1, &[says]);
        onto_other.assert_refused(1, &[says]);
        onto_objects.assert_refused(1, &["blobs.url contains objects that do not belong to this backup"]);
        assert_eq!(facts(mailroom), mine);
        assert_eq!(other.emails("acme").len(), 1);
        other.assert_whole();
    });
}

/// SQLite would play it into the restored database.
#[test]
fn orphaned_log_is_not_applied() {
    let mailroom = TestInstallation::sqlite();
    fill(&mailroom, 40, 4);
    back_up(&mailroom);
    let other = TestInstallation::sqlite();
    other.write("data/mailroom.db-wal", "a log");

    restore(&mailroom, &other).assert_refused(1, &["mailroom.db-wal already exists", "move the old data away"]);
}

#[test]
fn backup_needs_a_folder_of_its_own() {
    on_each_database(|mailroom| {
        fill(mailroom, 41, 2);
        mailroom.write("backup/diary.txt", "not a backup");

        let taken = mailroom.run(&["backup", "--out", &path(mailroom, "backup")]);
        let stranger = if mailroom.is_sqlite() { TestInstallation::sqlite() } else { TestInstallation::postgres() };
        stranger.import(&stranger.write("a.eml", simple("a", "b")));
        fs::remove_file(mailroom.path("backup/diary.txt")).unwrap();
        back_up(mailroom);
        let others = stranger.run(&["backup", "--out", &path(mailroom, "backup")]);

        taken.assert_refused(1, &["has other files in it than a backup", "give --out a folder of its own"]);
        others.assert_refused(1, &["contains a backup of another Mailroom", "set --out to another folder"]);
        let restored = empty(mailroom);
        assert_eq!(restore(mailroom, &restored).code, Some(0));
        assert_eq!(facts(&restored), facts(mailroom));
    });
}

#[test]
fn restore_needs_the_same_kind_of_database() {
    let (sqlite, postgres) = (TestInstallation::sqlite(), TestInstallation::postgres());
    for (from, to, says) in [
        (&sqlite, TestInstallation::empty_postgres(), "of a Mailroom on SQLite"),
        (&postgres, TestInstallation::sqlite(), "of a Mailroom on PostgreSQL"),
    ] {
        fill(from, 42, 2);
        back_up(from);

        restore(from, &to).assert_refused(1, &[says, "set database.url to a new"]);
    }
}

#[test]
fn lost_object_is_reported() {
    on_each_database(|mailroom| {
        fill(mailroom, 43, 3);
        fs::remove_file(&mailroom.packs()[0]).unwrap();

        let refused = mailroom.run(&["backup", "--out", &path(mailroom, "backup")]);

        refused.assert_refused(1, &["is missing from blob storage; run `mailroom verify`"]);
        assert!(!mailroom.path("backup/manifest.json").exists());
    });
}

fn script(mailroom: &TestInstallation, name: &str, folder: &str) -> CommandOutput {
    let path = Path::new("../../scripts").join(name).canonicalize().unwrap();
    CommandOutput::of(mailroom.command("bash", &[path.to_str().unwrap(), folder]).env("MAILROOM", PROGRAM))
}

#[test]
fn postgresql_scripts_back_up_and_restore() {
    let (mailroom, folder) = (TestInstallation::postgres(), "kept");
    fill(&mailroom, 44, 12);

    let backup = script(&mailroom, "backup-postgres.sh", folder);
    let restored = TestInstallation::empty_postgres();
    let restore = script(&restored, "restore-postgres.sh", &path(&mailroom, folder));
    let on_sqlite = script(&TestInstallation::sqlite(), "backup-postgres.sh", folder);

    assert_eq!(backup.code, Some(0), "{backup}");
    assert_eq!(restore.code, Some(0), "{restore}");
    assert!(restore.text().contains("acme: complete: 12 messages seen"), "{restore}");
    assert_eq!(facts(&restored), facts(&mailroom));
    assert_eq!(on_sqlite.code, Some(1), "{on_sqlite}");
    assert!(on_sqlite.stderr.starts_with("database.url is not a PostgreSQL"), "{on_sqlite}");
}

#[test]
fn restricted_login_dumps_nothing() {
    let mailroom = TestInstallation::postgres();
    fill(&mailroom, 45, 2);
    let (url, name) = (mailroom.url().unwrap(), mailroom.url().unwrap().rsplit('/').next().unwrap());
    let login = format!("{name}_blind");
    mailroom.sql(&format!("create role {login} login; grant select on all tables in schema public to {login}"));
    let blind = testing::admin_url(url).replace("postgres@", &format!("{login}@"));

    let args = ["backup", "--out", "kept"];
    let refused = mailroom.run_with(&[("MAILROOM_BACKUP__POSTGRES_URL", &blind)], &args);
    mailroom.sql(&format!("drop owned by {login}; drop role {login}"));

    refused.assert_refused(
        2,
        &["does not see all rows", "set backup.postgres_url to a login that mailroom_system was granted to"],
    );
    assert!(!mailroom.path("kept/manifest.json").exists());
}

#[test]
fn missing_postgresql_programs_are_reported() {
    let mailroom = TestInstallation::postgres();

    let refused = mailroom.run_with(&[("PATH", "/nowhere")], &["backup", "--out", "kept"]);

    refused.assert_refused(1, &["cannot run pg_dump", "install PostgreSQL's client programs"]);
}

#[test]
fn restore_can_be_repeated_after_any_failpoint() {
    on_each_database(|mailroom| {
        fill(mailroom, 46, 4);
        back_up(mailroom);
        let [command, folder] = restore_args(mailroom);
        for effect in [Effect::RestoreObject, Effect::RestoreDatabase] {
            for moment in ["before", "after"] {
                let (restored, failpoint) = (empty(mailroom), format!("{moment}:{}=crash", effect.name()));
                let mut dying = restored.command(PROGRAM, &[&command, &folder]);
                assert_eq!(
                    CommandOutput::of(dying.env(VARIABLE, &failpoint)).code,
                    None,
                    "{failpoint} was never reached"
                );

                let again = restore(mailroom, &restored);

                // A PostgreSQL that is restored already cannot be told from one in use.
                if !mailroom.is_sqlite() && failpoint == "after:restore_database=crash" {
                    again.assert_refused(1, &["finish an interrupted restore with `mailroom migrate`"]);
                } else {
                    assert_eq!(again.code, Some(0), "{failpoint}: {again}");
                }
                restored.assert_whole();
                assert_eq!(facts(&restored), facts(mailroom), "{failpoint}");
            }
        }
    });
}

/// Deletes and collects everything while a backup is stopped between its snapshot and the objects. Returns how the
/// collector and the backup ended.
fn collected_beside_a_backup(mailroom: &TestInstallation, off: &str) -> (Value, CommandOutput) {
    let file = mailroom.write("all.mbox", mbox(47, 30));
    assert_eq!(start_import(mailroom, &file).finish().code, Some(0));
    mailroom.import(&mailroom.write("kept.eml", simple("kept", "stays")));
    let mut backup = mailroom.command(PROGRAM, &["backup", "--out", &path(mailroom, "backup"), "--json"]);
    let mut backup = RunningProcess::start(backup.env(VARIABLE, "after:keep_snapshot=stop"));
    wait_until("the backup sleeps", || backup.has_ended() || backup.is_stopped());

    mailroom.ok(&["email", "purge", "--tenant", "acme", "--query", "-subject:kept", "--yes"]);
    let mut collector = mailroom.command(PROGRAM, &["gc", "--grace", "0s", "--json"]);
    let collected = CommandOutput::of(collector.env(VARIABLE, off));
    assert_eq!(collected.code, Some(0), "{collected}");
    backup.resume();
    (collected.objects().remove(0), backup.finish())
}

#[test]
fn collector_waits_for_a_backup() {
    on_each_database(|mailroom| {
        let (collected, backup) = collected_beside_a_backup(mailroom, "");

        assert_eq!(backup.code, Some(0), "{backup}");
        assert_eq!(collected["objects_deleted"], 0, "{collected}");
        assert!(collected["objects_held"].as_u64().unwrap() > 0, "{collected}");
        let restored = empty(mailroom);
        assert_eq!(restore(mailroom, &restored).code, Some(0));
        restored.assert_whole();
        assert_eq!(restored.emails("acme").len(), 31, "as it was when the backup began");
        let later = mailroom.objects(&["gc", "--grace", "0s"]).remove(0);
        assert!(later["objects_deleted"].as_u64().unwrap() > 0, "nobody holds them any more: {later}");
        mailroom.assert_whole();
    });
}

/// With a hold that did not hold, as when a backup sleeps for longer than its lease.
#[test]
fn backup_overtaken_by_the_collector_restarts() {
    on_each_database(|mailroom| {
        let (collected, backup) = collected_beside_a_backup(mailroom, "off=objects_held");

        assert!(collected["objects_deleted"].as_u64().unwrap() > 0, "{collected}");
        assert_eq!(backup.code, Some(0), "{backup}");
        let restored = empty(mailroom);
        assert_eq!(restore(mailroom, &restored).code, Some(0));
        restored.assert_whole();
        assert_eq!(restored.emails("acme").len(), 1, "as it was when the backup began again");
    });
}
