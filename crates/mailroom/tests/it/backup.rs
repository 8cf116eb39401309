//! `backup` and `restore`: beside running work, cut off anywhere, and with what is damaged told from what is whole.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::failpoint::{Effect, VARIABLE};
use store::testing;

use crate::crash::{Random, random, setting};
use crate::mail::{mbox, simple};
use crate::place::{Done, PROGRAM, Place, files_below, on_each_database};
use crate::processes::{Running, wait_until, watch_until};

const ROUNDS: u64 = 8;

fn path(place: &Place, name: &str) -> String {
    place.path(name).into_os_string().into_string().unwrap()
}

fn back_up(place: &Place) -> Value {
    place.object(&["backup", "--out", &path(place, "backup")])
}

/// Another Mailroom of the same kind with nothing in it, not even a schema.
fn empty(place: &Place) -> Place {
    if place.is_sqlite() { Place::sqlite() } else { Place::empty_postgres() }
}

fn restore_args(place: &Place) -> [String; 2] {
    ["restore".to_owned(), path(place, "backup")]
}

fn restore(from: &Place, to: &Place) -> Done {
    let [command, folder] = restore_args(from);
    to.run(&[&command, &folder, "--json"])
}

/// Everything that a restored Mailroom must say as the first did.
fn facts(place: &Place) -> Vec<Vec<Value>> {
    let tenants = place.tenants();
    let names: Vec<&str> = tenants.iter().map(|tenant| tenant["name"].as_str().unwrap()).collect();
    let emails = names.iter().map(|name| place.emails(name));
    let keys = names.iter().map(|name| place.objects(&["key", "list", "--tenant", name]));
    let lists: Vec<Vec<Value>> = emails.chain(keys).collect();
    [vec![tenants.clone()], lists].concat()
}

fn fill(place: &Place, seed: u64, count: usize) {
    place.import(&place.write("some.mbox", mbox(seed, count)));
    place.object(&["import", &path(place, "some.mbox"), "--tenant", "other", "--mailbox", "o@other.test"]);
    place.ok(&["key", "create", "--tenant", "acme", "--name", "ci"]);
}

#[test]
fn what_was_backed_up_is_restored() {
    on_each_database(|place| {
        fill(place, 31, 40);

        let summary = back_up(place);
        let restored = empty(place);
        let done = restore(place, &restored);

        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!((&summary["objects"], &summary["copied"]), (&json!(2), &json!(2)), "{summary}");
        assert_eq!(done.objects()[0]["objects"], 2);
        restored.assert_whole();
        assert_eq!(facts(&restored), facts(place));
        let again = restored.import(&path(place, "some.mbox"));
        assert_eq!((&again["stored"], &again["duplicates"]), (&json!(0), &json!(40)));
        assert_eq!(restored.import(&place.write("new.eml", simple("new", "mail")))["stored"], 1);
        restored.assert_whole();
    });
}

#[test]
fn a_second_backup_copies_what_is_new_and_drops_what_is_gone() {
    on_each_database(|place| {
        fill(place, 32, 10);
        back_up(place);
        place.import(&place.write("more.mbox", mbox(33, 5)));
        let stale = place.path("backup/objects/01a0/packs/00/stale");
        fs::create_dir_all(stale.parent().unwrap()).unwrap();
        fs::write(&stale, "no manifest names me").unwrap();
        let unfinished = place.path("backup/objects/01a0/packs/00/unfinished#1");
        fs::write(&unfinished, "whoever wrote me was kil").unwrap();

        let summary = back_up(place);

        let counts = ["objects", "copied", "removed"].map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counts, [3, 1, 1], "{summary}");
        assert!(!stale.exists() && !unfinished.exists());
        let names: BTreeSet<String> = names(&place.path("backup"));
        assert_eq!(names.len(), 4, "one database, manifest, lock, objects: {names:?}");
        let unchanged = back_up(place);
        assert_eq!((&unchanged["copied"], &unchanged["removed"]), (&json!(0), &json!(0)));
        let restored = empty(place);
        assert_eq!(restore(place, &restored).code, Some(0));
        restored.assert_whole();
        assert_eq!(facts(&restored), facts(place));
    });
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn only_its_owner_can_look_into_a_backup() {
    on_each_database(|place| {
        fill(place, 34, 3);
        back_up(place);

        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&place.path("backup")), 0o700);
        assert_eq!(mode(&place.path("backup/objects")), 0o700);
        for name in names(&place.path("backup")).iter().filter(|name| *name != "objects") {
            assert_eq!(mode(&place.path("backup").join(name)), 0o600, "{name}");
        }
    });
    let place = Place::sqlite();
    fill(&place, 34, 3);
    back_up(&place);
    let restored = empty(&place);
    assert_eq!(restore(&place, &restored).code, Some(0));
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(restored.data_dir()), 0o700);
    assert_eq!(mode(restored.data_dir().join("mailroom.db")), 0o600);
}

fn start_import(place: &Place, file: &str) -> Running {
    let args = ["import", file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
    Running::start(place.command(PROGRAM, &args).env("MAILROOM_IMPORT__BATCH_MESSAGES", "8"))
}

/// Backups while an import runs, one of them after the import was killed: each is whole batches and nothing less.
#[test]
fn a_backup_beside_an_import_is_whole() {
    on_each_database(|place| {
        let file = place.write("all.mbox", mbox(35, 160));
        let mut partial = 0;
        for is_killed in [true, false] {
            let mut import = start_import(place, &file);
            let before = place.packs().len();
            watch_until("an import gets somewhere", || import.has_ended() || place.packs().len() > before + 8);
            if is_killed {
                import.kill();
                back_up(place);
            } else {
                back_up(place);
                assert_eq!(import.finish().code, Some(0));
            }

            let restored = empty(place);
            assert_eq!(restore(place, &restored).code, Some(0));

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
fn reach_a_moment(folder: &Path, files: u64, running: &mut Running, random: &mut Random) {
    let (files, a_little) = (random.below(files), Duration::from_micros(random.below(8_000)));
    watch_until("it gets somewhere", || running.has_ended() || files_below(folder).len() as u64 >= files);
    let reached = Instant::now();
    watch_until("a little later", || running.has_ended() || reached.elapsed() >= a_little);
}

fn many_packs(place: &Place) {
    let file = place.write("all.mbox", mbox(36, 120));
    assert_eq!(start_import(place, &file).finish().code, Some(0));
}

/// The backup before stays whole until the next one is, wherever that is cut off.
fn killed_backups_go_on(place: &Place) {
    many_packs(place);
    let (mut random, mut killed) = (random(), 0);
    let expected = facts(place);

    for round in 0..setting("MAILROOM_TEST_CHAOS_ROUNDS", ROUNDS) {
        // Half of the rounds begin with nothing, the others with a finished backup and new mail.
        let folder = place.path("backup");
        if round % 2 == 0 && folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        let had_manifest = folder.join("manifest.json").exists();
        let args = ["backup", "--out", folder.to_str().unwrap(), "--json"];
        let mut running = Running::start(&mut place.command(PROGRAM, &args));
        reach_a_moment(&folder, 18, &mut running, &mut random);
        killed += u64::from(running.kill().code.is_none());

        let after_kill = empty(place);
        let done = restore(place, &after_kill);
        match folder.join("manifest.json").exists() {
            true => assert_eq!(done.code, Some(0), "round {round}: {done}"),
            false if folder.exists() => {
                assert!(!had_manifest);
                done.assert_refused(1, &["holds no finished backup", "run `mailroom backup --out` to its end"]);
            }
            false => done.assert_refused(1, &["there is no folder"]),
        }

        back_up(place);
        let restored = empty(place);
        assert_eq!(restore(place, &restored).code, Some(0), "round {round}");
        restored.assert_whole();
        assert_eq!(facts(&restored), expected, "round {round}");
        assert_eq!(names(&folder).len(), 4, "round {round}");
        assert_eq!(objects(place).len(), place.packs().len(), "round {round}");
    }
    assert!(killed > 0, "every backup ended before it was killed");
}

#[test]
fn a_killed_backup_goes_on_on_sqlite() {
    killed_backups_go_on(&Place::sqlite());
}

#[test]
fn a_killed_backup_goes_on_on_postgresql() {
    killed_backups_go_on(&Place::postgres());
}

fn killed_restores_go_on(place: &Place) {
    many_packs(place);
    back_up(place);
    let (mut random, mut killed) = (random(), 0);
    let expected = facts(place);

    for round in 0..setting("MAILROOM_TEST_CHAOS_ROUNDS", ROUNDS) {
        let restored = empty(place);
        let [command, folder] = restore_args(place);
        let mut running = Running::start(&mut restored.command(PROGRAM, &[&command, &folder, "--json"]));
        reach_a_moment(&restored.data_dir(), 18, &mut running, &mut random);
        killed += u64::from(running.kill().code.is_none());

        let mut done = restore(place, &restored);
        if !place.is_sqlite() {
            // What is left of the killed one may still be at work, and finish it.
            wait_until("the rest of a restore ends", || {
                let is_busy = done.stderr.contains("another restore is at work");
                if is_busy {
                    done = restore(place, &restored);
                }
                !is_busy
            });
            if done.stderr.contains("go on with `mailroom migrate`") {
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
fn a_killed_restore_goes_on_on_sqlite() {
    killed_restores_go_on(&Place::sqlite());
}

#[test]
fn a_killed_restore_goes_on_on_postgresql() {
    killed_restores_go_on(&Place::postgres());
}

fn objects(place: &Place) -> Vec<PathBuf> {
    files_below(&place.path("backup/objects"))
}

fn database(place: &Place) -> PathBuf {
    let is_database = |name: &String| name.starts_with("mailroom-");
    place.path("backup").join(names(&place.path("backup")).into_iter().find(is_database).unwrap())
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

fn edit_manifest(place: &Place, edit: impl Fn(&mut Value)) {
    let path = place.path("backup/manifest.json");
    let mut manifest = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn a_damaged_backup_is_refused_in_plain_words() {
    type Damage = (fn(&Place), &'static [&'static str]);
    let damages: [Damage; 11] = [
        (|place| cut(&objects(place)[0]), &["the backup is damaged: object", "bytes instead of", "use another backup"]),
        (|place| flip_a_bit(&objects(place)[0]), &["the backup is damaged: object", "does not match its hash"]),
        (|place| fs::remove_file(&objects(place)[0]).unwrap(), &["the backup is damaged: object", "is missing"]),
        (|place| cut(&database(place)), &["the backup is damaged: mailroom-", "bytes instead of"]),
        (|place| flip_a_bit(&database(place)), &["the backup is damaged: mailroom-", "does not match its hash"]),
        (|place| fs::remove_file(database(place)).unwrap(), &["the backup is damaged: mailroom-", "is missing"]),
        (|place| cut(&place.path("backup/manifest.json")), &["is damaged: its manifest.json cannot be read"]),
        (|place| fs::remove_file(place.path("backup/manifest.json")).unwrap(), &["holds no finished backup"]),
        (
            |place| edit_manifest(place, |manifest| manifest["schema_version"] = json!(9999)),
            &["made by a newer Mailroom (schema 9999", "upgrade this program"],
        ),
        (
            |place| edit_manifest(place, |manifest| manifest["format"] = json!(2)),
            &["made by a newer Mailroom; upgrade this program"],
        ),
        (
            |place| edit_manifest(place, |manifest| manifest["objects"][0]["key"] = json!("../../escaped")),
            &["is damaged: its manifest.json cannot be read"],
        ),
    ];
    on_each_database(|place| {
        fill(place, 37, 6);
        for (damage, says) in &damages {
            let _ = fs::remove_dir_all(place.path("backup"));
            back_up(place);
            damage(place);

            let restored = empty(place);
            restore(place, &restored).assert_refused(1, says);

            assert!(!restored.data_dir().join("mailroom.db").exists());
        }
    });
}

/// The next backup mends what it can see: objects that are missing or of another size.
#[test]
fn a_backup_that_lost_objects_is_completed_by_the_next() {
    on_each_database(|place| {
        fill(place, 38, 6);
        back_up(place);
        cut(&objects(place)[0]);
        fs::remove_file(&objects(place)[1]).unwrap();

        assert_eq!(back_up(place)["copied"], 2);

        let restored = empty(place);
        assert_eq!(restore(place, &restored).code, Some(0));
        restored.assert_whole();
    });
}

#[test]
fn a_restore_replaces_nothing() {
    on_each_database(|place| {
        fill(place, 39, 4);
        back_up(place);
        let mine = facts(place);

        let onto_itself = restore(place, place);
        let other = if place.is_sqlite() { Place::sqlite() } else { Place::postgres() };
        other.import(&other.write("a.eml", simple("mine", "stays")));
        let onto_other = restore(place, &other);
        let objects = empty(place);
        objects.write("data/blobs/0190/packs/00/pack", "somebody else's");
        let onto_objects = restore(place, &objects);

        let says = if place.is_sqlite() {
            "is there already, and a restore replaces nothing"
        } else {
            "there is a Mailroom in the database"
        };
        onto_itself.assert_refused(1, &[says]);
        onto_other.assert_refused(1, &[says]);
        onto_objects.assert_refused(1, &["there are objects in blobs.url that are not of this backup"]);
        assert_eq!(facts(place), mine);
        assert_eq!(other.emails("acme").len(), 1);
        other.assert_whole();
    });
}

/// SQLite would play it into the restored database.
#[test]
fn a_log_without_its_database_is_not_played_into_another() {
    let place = Place::sqlite();
    fill(&place, 40, 4);
    back_up(&place);
    let other = Place::sqlite();
    other.write("data/mailroom.db-wal", "a log");

    restore(&place, &other).assert_refused(1, &["mailroom.db-wal is there already", "move the old data away"]);
}

#[test]
fn a_backup_goes_into_a_folder_of_its_own() {
    on_each_database(|place| {
        fill(place, 41, 2);
        place.write("backup/diary.txt", "not a backup");

        let taken = place.run(&["backup", "--out", &path(place, "backup")]);
        let stranger = if place.is_sqlite() { Place::sqlite() } else { Place::postgres() };
        stranger.import(&stranger.write("a.eml", simple("a", "b")));
        fs::remove_file(place.path("backup/diary.txt")).unwrap();
        back_up(place);
        let others = stranger.run(&["backup", "--out", &path(place, "backup")]);

        taken.assert_refused(1, &["has other things in it than a backup", "give --out a folder of its own"]);
        others.assert_refused(1, &["holds a backup of another Mailroom", "give --out another folder"]);
        let restored = empty(place);
        assert_eq!(restore(place, &restored).code, Some(0));
        assert_eq!(facts(&restored), facts(place));
    });
}

#[test]
fn a_backup_of_one_kind_is_not_restored_into_the_other() {
    let (sqlite, postgres) = (Place::sqlite(), Place::postgres());
    for (from, to, says) in [
        (&sqlite, Place::empty_postgres(), "of a Mailroom on SQLite"),
        (&postgres, Place::sqlite(), "of a Mailroom on PostgreSQL"),
    ] {
        fill(from, 42, 2);
        back_up(from);

        restore(from, &to).assert_refused(1, &[says, "set database.url to a new"]);
    }
}

#[test]
fn an_object_that_is_lost_for_good_is_told() {
    on_each_database(|place| {
        fill(place, 43, 3);
        fs::remove_file(&place.packs()[0]).unwrap();

        let refused = place.run(&["backup", "--out", &path(place, "backup")]);

        refused.assert_refused(1, &["is missing from blob storage; run `mailroom verify`"]);
        assert!(!place.path("backup/manifest.json").exists());
    });
}

fn script(place: &Place, name: &str, folder: &str) -> Done {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    Done::of(place.command("bash", &[path.to_str().unwrap(), folder]).env("MAILROOM", PROGRAM))
}

#[test]
fn the_scripts_for_postgresql_back_up_and_restore() {
    let (place, folder) = (Place::postgres(), "kept");
    fill(&place, 44, 12);

    let backup = script(&place, "backup-postgres.sh", folder);
    let restored = Place::empty_postgres();
    let restore = script(&restored, "restore-postgres.sh", &path(&place, folder));
    let on_sqlite = script(&Place::sqlite(), "backup-postgres.sh", folder);

    assert_eq!(backup.code, Some(0), "{backup}");
    assert_eq!(restore.code, Some(0), "{restore}");
    assert!(restore.text().contains("acme: complete: 12 messages seen"), "{restore}");
    assert_eq!(facts(&restored), facts(&place));
    assert_eq!(on_sqlite.code, Some(1), "{on_sqlite}");
    assert!(on_sqlite.stderr.starts_with("database.url is not a PostgreSQL"), "{on_sqlite}");
}

#[test]
fn a_login_that_does_not_see_all_rows_dumps_nothing() {
    let place = Place::postgres();
    fill(&place, 45, 2);
    let (url, name) = (place.url().unwrap(), place.url().unwrap().rsplit('/').next().unwrap());
    let login = format!("{name}_blind");
    place.sql(&format!("create role {login} login; grant select on all tables in schema public to {login}"));
    let blind = testing::admin_url(url).replace("postgres@", &format!("{login}@"));

    let args = ["backup", "--out", "kept"];
    let refused = place.run_with(&[("MAILROOM_BACKUP__POSTGRES_URL", &blind)], &args);
    place.sql(&format!("drop owned by {login}; drop role {login}"));

    refused.assert_refused(
        2,
        &["does not see all rows", "set backup.postgres_url to a login that mailroom_system was granted to"],
    );
    assert!(!place.path("kept/manifest.json").exists());
}

#[test]
fn missing_programs_of_postgresql_are_told() {
    let place = Place::postgres();

    let refused = place.run_with(&[("PATH", "/nowhere")], &["backup", "--out", "kept"]);

    refused.assert_refused(1, &["cannot run pg_dump", "install PostgreSQL's client programs"]);
}

#[test]
fn a_restore_that_dies_at_any_failpoint_is_run_again() {
    on_each_database(|place| {
        fill(place, 46, 4);
        back_up(place);
        let [command, folder] = restore_args(place);
        for effect in [Effect::RestoreObject, Effect::RestoreDatabase] {
            for moment in ["before", "after"] {
                let (restored, failpoint) = (empty(place), format!("{moment}:{}=crash", effect.name()));
                let mut dying = restored.command(PROGRAM, &[&command, &folder]);
                assert_eq!(Done::of(dying.env(VARIABLE, &failpoint)).code, None, "{failpoint} was never reached");

                let again = restore(place, &restored);

                // A PostgreSQL that is restored already cannot be told from one in use.
                match !place.is_sqlite() && failpoint == "after:restore_database=crash" {
                    true => again.assert_refused(1, &["go on with `mailroom migrate`"]),
                    false => assert_eq!(again.code, Some(0), "{failpoint}: {again}"),
                }
                restored.assert_whole();
                assert_eq!(facts(&restored), facts(place), "{failpoint}");
            }
        }
    });
}

/// Everything is deleted and collected while a backup sleeps between its snapshot and the objects. How the collector
/// and the backup ended.
fn collected_beside_a_backup(place: &Place, off: &str) -> (Value, Done) {
    let file = place.write("all.mbox", mbox(47, 30));
    assert_eq!(start_import(place, &file).finish().code, Some(0));
    place.import(&place.write("kept.eml", simple("kept", "stays")));
    let mut backup = place.command(PROGRAM, &["backup", "--out", &path(place, "backup"), "--json"]);
    let mut backup = Running::start(backup.env(VARIABLE, "after:keep_snapshot=stop"));
    wait_until("the backup sleeps", || backup.has_ended() || backup.is_stopped());

    place.ok(&["email", "purge", "--tenant", "acme", "--query", "-subject:kept", "--yes"]);
    let mut collector = place.command(PROGRAM, &["gc", "--grace", "0s", "--json"]);
    let collected = Done::of(collector.env(VARIABLE, off));
    assert_eq!(collected.code, Some(0), "{collected}");
    backup.resume();
    (collected.objects().remove(0), backup.finish())
}

#[test]
fn the_collector_waits_for_a_backup() {
    on_each_database(|place| {
        let (collected, backup) = collected_beside_a_backup(place, "");

        assert_eq!(backup.code, Some(0), "{backup}");
        assert_eq!(collected["objects_deleted"], 0, "{collected}");
        assert!(collected["objects_held"].as_u64().unwrap() > 0, "{collected}");
        let restored = empty(place);
        assert_eq!(restore(place, &restored).code, Some(0));
        restored.assert_whole();
        assert_eq!(restored.emails("acme").len(), 31, "as it was when the backup began");
        let later = place.objects(&["gc", "--grace", "0s"]).remove(0);
        assert!(later["objects_deleted"].as_u64().unwrap() > 0, "nobody holds them any more: {later}");
        place.assert_whole();
    });
}

/// With a hold that did not hold, as when a backup sleeps for longer than its lease.
#[test]
fn a_backup_that_the_collector_overtook_begins_again() {
    on_each_database(|place| {
        let (collected, backup) = collected_beside_a_backup(place, "off=objects_held");

        assert!(collected["objects_deleted"].as_u64().unwrap() > 0, "{collected}");
        assert_eq!(backup.code, Some(0), "{backup}");
        let restored = empty(place);
        assert_eq!(restore(place, &restored).code, Some(0));
        restored.assert_whole();
        assert_eq!(restored.emails("acme").len(), 1, "as it was when the backup began again");
    });
}
