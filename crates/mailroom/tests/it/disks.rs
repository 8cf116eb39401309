//! Disks that are full, read-only or failing: the error is one plain sentence, nothing half-stored, and the work completes
//! when they are well again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::mail::{mbox, simple};
use crate::processes::UnprivilegedUser;

#[test]
fn read_only_data_folder_is_reported() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("a.eml", simple("a", "b"));
    let nobody = UnprivilegedUser::new(&mailroom);
    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];
    fs::create_dir(mailroom.data_dir()).unwrap();
    fs::set_permissions(mailroom.data_dir(), Permissions::from_mode(0o555)).unwrap();

    let new = nobody.run(&mailroom, &args);
    fs::set_permissions(mailroom.data_dir(), Permissions::from_mode(0o755)).unwrap();
    mailroom.import(&file);
    let more = mailroom.write("b.eml", simple("c", "d"));
    set_read_only(&mailroom.data_dir(), true);
    let old = nobody.run(&mailroom, &["import", &more, "--tenant", "acme", "--mailbox", "me@acme.test"]);
    let doctor = nobody.run(&mailroom, &["doctor"]);
    set_read_only(&mailroom.data_dir(), false);

    new.assert_refused(1, &["cannot open or make the database", "check that the folder exists and can be written"]);
    old.assert_refused(1, &["cannot be written", "check the rights of the"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.text().contains("BAD  data folder"), "{doctor}");
    mailroom.assert_whole();
    assert_eq!(mailroom.emails("acme").len(), 1);
}

fn set_read_only(folder: &Path, is_read_only: bool) {
    let mode = if is_read_only { "a-w,a+rX" } else { "u+w" };
    let done = CommandOutput::of(Command::new("chmod").args(["-R", mode]).arg(folder));
    assert_eq!(done.code, Some(0), "{done}");
}

/// Returns the arguments of `unshare` for a shell that may mount disks: as root, or in a user namespace.
fn world_with_disks() -> Option<&'static [&'static str]> {
    let worlds = [&["--mount"][..], &["--user", "--map-root-user", "--mount"]];
    let try_it = "d=$(mktemp -d) && mount -t tmpfs tmpfs $d";
    worlds.into_iter().find(|world| {
        let tried = Command::new("unshare").args(*world).args(["sh", "-c", try_it]).output();
        tried.is_ok_and(|tried| tried.status.success())
    })
}

/// Runs a script; each run of the program in it leaves its exit code and output in files.
fn run_with_disks(mailroom: &TestInstallation, world: &[&str], script: &str, variables: &[(&str, &str)]) {
    let run = r#"run() { local name=$1; shift; code=0; "$PROGRAM" "$@" >"$name.out" 2>"$name.err" || code=$?; echo $code >"$name.code"; }"#;
    let script = format!("set -eu\n{run}\n{script}");

    let mut shell = mailroom.command("unshare", &[world, &["bash", "-c", &script]].concat());
    let ran = CommandOutput::of(shell.env("PROGRAM", PROGRAM).envs(variables.iter().copied()));

    assert_eq!(ran.code, Some(0), "{ran}");
}

fn ran(mailroom: &TestInstallation, name: &str) -> CommandOutput {
    let [code, stdout, stderr] =
        ["code", "out", "err"].map(|what| fs::read(mailroom.path(&format!("{name}.{what}"))).unwrap());
    let code = String::from_utf8(code).unwrap().trim().parse().unwrap();
    CommandOutput::new(Some(code), stdout, &stderr)
}

const ON_A_READ_ONLY_DISK: &str = r#"
mount -t tmpfs -o size=40m tmpfs "$MAILROOM_DATA_DIR"
run first import a.eml --tenant acme --mailbox me@acme.test
mount -o remount,bind,ro "$MAILROOM_DATA_DIR"
run refused import b.eml --tenant acme --mailbox me@acme.test
mount -o remount,bind,rw "$MAILROOM_DATA_DIR"
run verify verify --deep
run again import b.eml --tenant acme --mailbox me@acme.test
"#;

#[test]
fn read_only_disk_is_reported() {
    // In a container that may not mount, a folder without rights is as near as we get.
    let Some(world) = world_with_disks() else { return read_only_data_folder_is_reported() };
    on_each_database(|mailroom| {
        mailroom.write("a.eml", simple("a", "b"));
        mailroom.write("b.eml", simple("c", "d"));
        fs::create_dir_all(mailroom.data_dir()).unwrap();

        run_with_disks(mailroom, world, ON_A_READ_ONLY_DISK, &[]);

        assert_eq!(ran(mailroom, "first").code, Some(0));
        ran(mailroom, "refused").assert_refused(1, &["cannot be written", "check the rights of the", "not read-only"]);
        assert_eq!(ran(mailroom, "verify").code, Some(0));
        assert_eq!(ran(mailroom, "again").code, Some(0));
    });
}

/// Fills the disk up to a little, imports, frees it and verifies, with more and more left.
const ON_A_FULL_DISK: &str = r#"
mount -t tmpfs -o size=40m tmpfs "$MAILROOM_DATA_DIR"
run tenant tenant create acme
for left in $LEFT; do
    free=$(($(stat -f -c '%a*%S' "$MAILROOM_DATA_DIR")))
    head -c $((free - left)) /dev/zero >"$MAILROOM_DATA_DIR/ballast"
    run "full-$left" import mail.mbox --tenant acme --mailbox me@acme.test --json
    rm "$MAILROOM_DATA_DIR/ballast"
    run "verify-$left" verify --deep --json
done
run again import mail.mbox --tenant acme --mailbox me@acme.test --json
run verify verify --deep --json
run once-more import mail.mbox --tenant acme --mailbox me@acme.test --json
"#;

/// With the least of them not even the log of a SQLite database fits, or the first pack.
const FREE_BYTES: [u64; 4] = [0, 100_000, 500_000, 2_000_000];

#[test]
fn import_completes_after_a_full_disk() {
    // In a container that may not mount, a system that says so is as near as we get.
    let Some(world) = world_with_disks() else { return full_disk_is_reported_at_any_write() };
    on_each_database(|mailroom| {
        const MESSAGES: usize = 200;
        mailroom.write("mail.mbox", mbox(17, MESSAGES));
        fs::create_dir_all(mailroom.data_dir()).unwrap();
        let left = FREE_BYTES.map(|bytes| bytes.to_string()).join(" ");

        run_with_disks(mailroom, world, ON_A_FULL_DISK, &[("LEFT", &left), ("MAILROOM_IMPORT__BATCH_MESSAGES", "25")]);

        let mut refused = 0;
        for left in FREE_BYTES {
            let full = ran(mailroom, &format!("full-{left}"));
            if full.code != Some(0) {
                refused += 1;
                full.assert_refused(1, &["there is no space left for", "; free some and run the command again"]);
            }
            let verified = ran(mailroom, &format!("verify-{left}"));
            assert_eq!(verified.code, Some(0), "after {left} bytes: {verified}");
        }
        assert!(refused >= 2, "the disk was hardly ever full");
        let again = ran(mailroom, "again");
        assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""), "{again}");
        assert_eq!(again.objects()[0]["read"], MESSAGES);
        assert_eq!(ran(mailroom, "verify").objects()[0]["totals"]["emails"], MESSAGES);
        assert_eq!(ran(mailroom, "once-more").objects()[0]["stored"], 0);
    });
}

/// The system says that there is no room from some call on: every write to the SQLite file, or every sync of a pack.
#[test]
fn full_disk_is_reported_at_any_write() {
    on_each_database(|mailroom| {
        let file = mailroom.write("mail.mbox", mbox(18, 60));
        mailroom.ok(&["tenant", "create", "acme"]);
        // Counted in each thread apart: SQLite is written by one, packs by several, so their counts must be low.
        let (call, firsts): (_, &[u32]) =
            if mailroom.is_sqlite() { ("pwrite64", &[1, 10, 60, 200]) } else { ("fsync", &[1, 2, 3]) };
        let import = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];

        for first in firsts {
            let full = with_failing_calls(mailroom, call, "ENOSPC", *first, &import);

            full.assert_refused(1, &["there is no space left for", "; free some and run the command again"]);
            mailroom.assert_whole();
        }

        let again = mailroom.object(&import[..6]);
        assert_eq!((&again["read"], &again["failed"]), (&json!(60), &json!(0)));
        assert_eq!(mailroom.emails("acme").len(), 60);
        mailroom.assert_whole();
    });
}

/// Runs the program with an error of the system in every call from the given one on. Each thread counts for itself.
fn with_failing_calls(
    mailroom: &TestInstallation,
    calls: &str,
    error: &str,
    first: u32,
    args: &[&str],
) -> CommandOutput {
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:error={error}:when={first}+"));
    let strace = ["-f", "-o", "/dev/null", "-e", &trace, "-e", &inject, PROGRAM];
    CommandOutput::of(
        mailroom.command("strace", &[&strace[..], args].concat()).env("MAILROOM_IMPORT__BATCH_MESSAGES", "10"),
    )
}

/// The same for one file only, which may not exist yet.
fn with_failing_file(
    mailroom: &TestInstallation,
    file: &Path,
    calls: &str,
    error: &str,
    args: &[&str],
) -> CommandOutput {
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:error={error}"));
    let strace = ["-f", "-o", "/dev/null", "-P", file.to_str().unwrap(), "-e", &trace, "-e", &inject, PROGRAM];
    CommandOutput::of(&mut mailroom.command("strace", &[&strace[..], args].concat()))
}

const SYNCS: &str = "fsync,fdatasync";

#[test]
fn import_completes_after_failed_syncs() {
    on_each_database(|mailroom| {
        let file = mailroom.write("mail.mbox", mbox(19, 60));
        mailroom.ok(&["tenant", "create", "acme"]);
        let import = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];

        for first in [1, 2, 3] {
            let failed = with_failing_calls(mailroom, SYNCS, "EIO", first, &import);

            failed.assert_refused(1, &["the disk of ", "fails (", "; check it, then run the command again"]);
            mailroom.assert_whole();
        }

        let again = mailroom.object(&import[..6]);
        assert_eq!((&again["read"], &again["failed"]), (&json!(60), &json!(0)));
        assert_eq!(mailroom.emails("acme").len(), 60);
        mailroom.assert_whole();
    });
}

/// Syncs of the database alone fail: with every pack on disk, the commit fails.
#[test]
fn unsynced_log_stores_nothing() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("a.eml", simple("a", "b"));
    mailroom.ok(&["tenant", "create", "acme"]);
    let import = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];

    let failed = with_failing_file(&mailroom, &mailroom.data_dir().join("mailroom.db-wal"), SYNCS, "EIO", &import);

    failed.assert_refused(1, &["the disk of the database fails"]);
    mailroom.assert_whole();
    assert_eq!(mailroom.import(&file)["read"], 1);
    assert_eq!(mailroom.emails("acme").len(), 1);
    mailroom.assert_whole();
}

/// What a backup and a restore leave when syncs fail: nothing that passes for whole, and everything to go on.
#[test]
fn backup_completes_after_disk_faults() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("mail.mbox", mbox(20, 30)));
        let out = mailroom.path("backup").into_os_string().into_string().unwrap();
        let backup = ["backup", "--out", &out, "--json"];

        let key = mailroom.packs()[0].strip_prefix(mailroom.data_dir().join("blobs")).unwrap().display().to_string();
        let (snapshot, manifest) = (mailroom.path("backup/snapshot.partial"), mailroom.path("backup/manifest.partial"));
        let object = mailroom.path("backup/objects").join(format!("{key}#1"));
        for (n, (file, calls, error)) in [
            (&snapshot, "write,pwrite64", "ENOSPC"),
            (&snapshot, SYNCS, "EIO"),
            (&object, "write", "ENOSPC"),
            (&object, SYNCS, "EIO"),
            (&manifest, "write", "ENOSPC"),
            (&manifest, SYNCS, "EIO"),
        ]
        .into_iter()
        .enumerate()
        {
            let failed = with_failing_file(mailroom, file, calls, error, &backup);
            let none = TestInstallation::sqlite().run(&["restore", &out]);

            assert_eq!((failed.code, failed.text().as_str()), (Some(1), ""), "{n}: {failed}");
            assert!(failed.stderr.contains("cannot write the backup"), "{n}: {failed}");
            none.assert_refused(1, &["holds no finished backup"]);
        }
        let done = mailroom.object(&backup[..3]);
        let finished = fs::read(mailroom.path("backup/manifest.json")).unwrap();
        mailroom.import(&mailroom.write("new.eml", simple("new", "mail")));
        let failed = with_failing_file(mailroom, &manifest, SYNCS, "EIO", &backup);

        assert_eq!(done["objects"], 1);
        assert_eq!(failed.code, Some(1), "{failed}");
        assert_eq!(fs::read(mailroom.path("backup/manifest.json")).unwrap(), finished, "the backup before is whole");
        assert_eq!(mailroom.object(&backup[..3])["copied"], 0, "what was copied then is there");
        restores_in_the_end(mailroom, &out);
    });
}

fn restores_in_the_end(mailroom: &TestInstallation, backup: &str) {
    let restored = if mailroom.is_sqlite() { TestInstallation::sqlite() } else { TestInstallation::empty_postgres() };

    let failed = with_failing_calls(&restored, SYNCS, "EIO", 1, &["restore", backup, "--json"]);
    assert_eq!(failed.code, Some(1), "{failed}");
    assert!(!restored.data_dir().join("mailroom.db").exists());

    restored.ok(&["restore", backup]);
    restored.assert_whole();
    assert_eq!(restored.emails("acme").len(), 31);
}
