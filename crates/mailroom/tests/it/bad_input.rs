//! Whatever is wrong: one plain sentence with what to do, the right exit code, and nothing half-stored.

use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::mail::{mbox, simple};
use crate::place::{Done, PASSWORD, PROGRAM, Place, on_each_database};
use crate::processes::is_root;
use crate::servers::{Postgres, closed_port};

const MEMORY: u64 = 200 << 20;

fn import(place: &Place, path: &str) -> Done {
    place.run(&["import", path, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"])
}

/// An import of something that cannot be imported at all makes nothing, not even the tenant.
fn assert_nothing_made(place: &Place) {
    assert_eq!(place.tenants(), Vec::<Value>::new());
    assert_eq!(place.packs(), Vec::<PathBuf>::new());
}

#[test]
fn what_is_no_mail_file_is_refused_before_anything_is_made() {
    on_each_database(|place| {
        place.write("notes/readme.txt", "nothing here");
        place.write("junk.eml", junk());
        place.write("junk.mbox", junk());
        place.write("archive.eml", b"PK\x03\x04\x14\0\0\0\x08\0zip");
        place.write("empty.eml", b"");
        fs::create_dir(place.path("empty")).unwrap();
        symlink("circle", place.path("circle")).unwrap();

        for (name, says) in [
            ("missing.mbox", "missing.mbox does not exist; check the path"),
            ("notes", "no mail was found in notes; name an mbox file, a Maildir or a folder with .eml files"),
            ("empty", "no mail was found in empty; name"),
            ("junk.eml", "junk.eml is binary data, not an email; leave it out or restore the original file"),
            ("junk.mbox", "junk.mbox is binary data, not an email; leave it out"),
            ("archive.eml", "archive.eml is a zip archive, not an email; unpack it first"),
            ("empty.eml", "empty.eml is empty; export or copy it again"),
            (
                "circle",
                "circle could not be read (Too many levels of symbolic links (os error 40)); check its permissions",
            ),
            // Opens, and cannot be read, for root and everybody else.
            (
                "/proc/self/mem",
                "/proc/self/mem could not be read (Input/output error (os error 5)); check its permissions",
            ),
            ("/dev/null", "/dev/null is neither a file nor a folder; save the mail to a file first"),
        ] {
            import(place, name).assert_refused(1, &[says]);
            assert_nothing_made(place);
        }
    });
}

/// Bytes without structure, the same each time.
fn junk() -> Vec<u8> {
    let mut state = 1_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8 & !0x40
    };
    (0..100_000).map(next).collect()
}

#[test]
fn a_bad_file_among_good_ones_is_told_and_the_rest_is_stored() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        place.write("mail/1.eml", simple("one", "x"));
        place.write("mail/2.eml", b"PK\x03\x04zip");
        place.write("mail/3.eml", simple("three", "x"));

        let done = import(place, "mail");

        assert_eq!(done.code, Some(1));
        done.assert_one_sentence("not imported: ", &["mail/2.eml is a zip archive, not an email; unpack it first"]);
        let summary = done.objects().remove(0);
        assert_eq!((&summary["read"], &summary["stored"], &summary["failed"]), (&json!(3), &json!(2), &json!(1)));
        place.assert_whole();
    });
}

#[test]
fn a_name_is_no_command_to_the_terminal() {
    let place = Place::sqlite();
    place.write("mail/1.eml", simple("one", "x"));
    place.write("mail/\u{1b}[31m\n2.eml", b"PK\x03\x04zip");
    place.ok(&["tenant", "create", "acme"]);

    import(&place, "mail").assert_one_sentence("not imported: mail/ [31m 2.eml is a zip archive", &[]);
    import(&place, "\u{1b}]0;title\u{7}").assert_refused(1, &["error:  ]0;title  does not exist; check the path"]);
}

#[test]
fn a_file_without_permission_is_told_and_the_rest_is_stored() {
    let place = Place::sqlite();
    place.ok(&["tenant", "create", "acme"]);
    place.write("mail/1.eml", simple("one", "x"));
    let locked = place.write("mail/2.eml", simple("two", "x"));
    fs::set_permissions(&locked, Permissions::from_mode(0o000)).unwrap();
    let nobody = Nobody::new(&place);
    nobody.owns(&place.data_dir());

    let alone = nobody.run(&place, &["import", &locked, "--tenant", "acme", "--mailbox", "me@acme.test"]);
    let among = nobody.run(&place, &["import", "mail", "--tenant", "acme", "--mailbox", "me@acme.test", "--json"]);

    alone.assert_refused(1, &["2.eml could not be read (Permission denied (os error 13)); check its permissions"]);
    assert_eq!(among.code, Some(1));
    among.assert_one_sentence("not imported: ", &["2.eml could not be read (Permission denied"]);
    assert_eq!(among.objects()[0]["stored"], 1);
}

#[test]
fn a_message_that_is_known_to_be_cut_is_told_and_the_rest_is_stored() {
    on_each_database(|place| {
        place.import(&place.write("all.mbox", mbox(16, 6)));
        place.ok(&["export", "--tenant", "acme", "--out", "export.mbox"]);
        let whole = fs::read(place.path("export.mbox")).unwrap();
        let apple = simple("apple", "x");
        place.write("cut/export.mbox", &whole[..whole.len() - 7]);
        place.write("cut/a.emlx", format!("{}\n{}", apple.len(), &apple[..apple.len() - 1]));
        let args = ["import", "cut", "--tenant", "other", "--mailbox", "me@other.test", "--json"];
        place.ok(&["tenant", "create", "other"]);

        let done = place.run(&args);

        assert_eq!(done.code, Some(1), "{done}");
        let told: Vec<&str> = done.stderr.lines().collect();
        assert_eq!(told.len(), 2, "{done}");
        assert_eq!(
            told[0],
            "not imported: cut/a.emlx ends in the middle of the message; copy or export the file again"
        );
        assert!(told[1].starts_with("not imported: cut/export.mbox:"), "{done}");
        assert!(told[1].ends_with(" ends in the middle of the message; copy or export the file again"), "{done}");
        let summary = done.objects().remove(0);
        assert_eq!((&summary["stored"], &summary["failed"]), (&json!(5), &json!(2)), "{summary}");
        place.assert_whole();
    });
}

/// Nothing but the end of the file ends its last message.
#[test]
fn a_truncated_mbox_without_lengths_gives_what_is_there() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let part = "From: a@acme.test\nSubject: cut\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\
            Content-Type: application/pdf; name=a.pdf\nContent-Disposition: attachment; filename=a.pdf\n\
            Content-Transfer-Encoding: base64\n\nJVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmoKPDwvTGVuZ3RoIDMg\n";
        let whole = [mbox(16, 5), format!("From a@x Tue Jan  2 12:00:00 2024\n{part}").into_bytes()].concat();
        let file = place.write("cut.mbox", &whole[..whole.len() - 7]);

        let done = import(place, &file);

        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done}");
        assert_eq!(done.objects()[0]["stored"], 6);
        let cut = place.object(&["search", "subject:cut", "--tenant", "acme", "--full"]);
        assert!(!cut["defects"].as_array().unwrap().is_empty(), "{cut}");
        assert_eq!(cut["has_attachments"], true);
        place.assert_whole();
    });
}

/// A file with a gigabyte between its beginning and its end, most of which is not on disk.
fn with_a_gigabyte(place: &Place, name: &str, start: &str, end: &str) -> String {
    let path = place.write(name, start);
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(1 << 30)).unwrap();
    file.write_all(end.as_bytes()).unwrap();
    path
}

#[test]
fn a_line_of_a_gigabyte_costs_no_memory_and_only_its_own_message() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let from = "From a@x Tue Jan  2 12:00:00 2024\n";
        let start = format!("{from}{}\n{from}Subject: huge\n\n", simple("before", "x"));
        let end = format!("\n\n{from}{}", simple("after", "x"));
        let file = with_a_gigabyte(place, "huge.mbox", &start, &end);
        let alone = with_a_gigabyte(place, "huge.eml", "Subject: huge\n\n", "\n");

        let done = import(place, &file);

        assert_eq!(done.code, Some(1), "{done}");
        done.assert_one_sentence(
            "not imported: ",
            &["is larger than limits.message_size (50 MiB); raise it to import"],
        );
        let summary = done.objects().remove(0);
        assert_eq!((&summary["stored"], &summary["failed"]), (&json!(2), &json!(1)), "{summary}");
        assert!(summary["peak_memory_bytes"].as_u64().unwrap() < MEMORY, "{summary}");
        import(place, &alone).assert_refused(1, &["huge.eml is larger than limits.message_size (50 MiB); raise it"]);
        place.assert_whole();
    });
}

/// Ten thousand parts, in each other or after one another, and the defect of each. An attached message is one
/// attachment, whatever is in it.
fn hostile_structures() -> [(&'static str, String, &'static str); 4] {
    const PARTS: usize = 10_000;
    let open = |n| format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n");
    let multiparts: String = (0..PARTS).map(open).collect();
    let messages = "Content-Type: message/rfc822\n\n".repeat(PARTS);
    let siblings = "--b\nContent-Disposition: attachment; filename=a.txt\n\nx\n".repeat(PARTS);
    let both: String = (0..PARTS).map(|n| format!("{}Content-Type: message/rfc822\n\n", open(n))).collect();
    let in_one = "Content-Type: multipart/mixed; boundary=b";
    [
        ("multiparts", format!("Subject: multiparts\n{multiparts}\ndeep\n"), "nesting_too_deep"),
        ("messages", format!("Subject: messages\n{messages}Subject: deep\n\nx\n"), "no_receive_time"),
        ("siblings", format!("Subject: siblings\n{in_one}\n\n{siblings}--b--\n"), "too_many_parts"),
        ("both", format!("Subject: both\n{both}\ndeep\n"), "unclosed_multipart"),
    ]
}

#[test]
fn ten_thousand_parts_are_a_defect_of_a_stored_email() {
    on_each_database(|place| {
        for (name, mail, defect) in hostile_structures() {
            let summary = place.import(&place.write(&format!("{name}.eml"), &mail));

            assert_eq!((&summary["stored"], &summary["failed"]), (&json!(1), &json!(0)), "{name}");
            assert!(summary["peak_memory_bytes"].as_u64().unwrap() < MEMORY, "{name}: {summary}");
            let email = place.object(&["search", &format!("subject:{name}"), "--tenant", "acme", "--full"]);
            assert!(email["defects"].as_array().unwrap().contains(&json!(defect)), "{name}: {}", email["defects"]);
            let raw = place.ok(&["email", "show", email["id"].as_str().unwrap(), "--raw", "--tenant", "acme"]);
            assert!(raw.stdout == mail.as_bytes(), "{name} does not come back as it was");
        }
        place.assert_whole();
    });
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    on_each_database(|place| {
        let file = place.write("a.eml", simple("a", "b"));
        place.import(&file);
        place.sql("insert into schema_migrations values (9999, 'future', '', '2026-01-01')");
        let says = ["the database was made by a newer Mailroom (schema 9999", "; upgrade this program"];

        import(place, &file).assert_refused(1, &says);
        place.run(&["search", "", "--tenant", "acme"]).assert_refused(1, &says);
        place.run(&["migrate"]).assert_refused(1, &says);
        place.run(&["migrate", "--check"]).assert_refused(1, &says);

        place.sql("delete from schema_migrations where version = 9999");
        place.assert_whole();
        assert_eq!(place.emails("acme").len(), 1);
    });
}

#[test]
fn an_outdated_postgresql_is_refused_until_it_is_migrated() {
    let place = Place::empty_postgres();
    let file = place.write("a.eml", simple("a", "b"));

    import(&place, &file).assert_refused(1, &["schema is version 0", "run `mailroom migrate`"]);

    place.ok(&["migrate"]);
    place.import(&file);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_kept() {
    let place = Place::sqlite();
    let file = place.write("a.eml", simple("a", "b"));
    let text = "Dear diary, this is not a database at all. ".repeat(100);
    let database = place.write("data/mailroom.db", &text);

    import(&place, &file).assert_refused(1, &["is not a SQLite database; check database.url and data_dir"]);

    assert_eq!(fs::read_to_string(database).unwrap(), text);
}

#[test]
fn a_wrong_password_is_told_without_telling_it() {
    let place = Place::sqlite();
    let file = place.write("a.eml", simple("a", "b"));
    let server = Postgres::start();
    server.require_password("right");
    let (wrong, right) = (server.url_with(PASSWORD), server.url_with("right"));
    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];

    let refused = place.run_with(&[("MAILROOM_DATABASE__URL", &wrong)], &args);
    let doctor = place.run_with(&[("MAILROOM_DATABASE__URL", &wrong)], &["doctor"]);
    let file_of_url = place.write("url", &wrong);
    let by_file = place.run_with(&[("MAILROOM_DATABASE__URL_FILE", &file_of_url)], &args);
    let nowhere = place.run_with(&[("MAILROOM_DATABASE__URL", &format!("{right}_absent"))], &args);

    for refused in [refused, by_file] {
        refused.assert_refused(2, &["PostgreSQL refuses the login", "check the user and password in database.url"]);
    }
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.text().contains("BAD  database       PostgreSQL refuses the login"), "{doctor}");
    nowhere.assert_refused(2, &["does not exist", "create the database or correct database.url"]);
    let right = [("MAILROOM_DATABASE__URL", right.as_str())];
    assert_eq!(place.run_with(&right, &["migrate"]).code, Some(0));
    assert_eq!(place.run_with(&right, &args).code, Some(0));
}

#[test]
fn a_postgresql_that_does_not_run_is_told() {
    let place = Place::sqlite();
    let file = place.write("a.eml", simple("a", "b"));
    let url = format!("postgres://ada:{PASSWORD}@127.0.0.1:{}/mail", closed_port());

    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];
    let refused = place.run_with(&[("MAILROOM_DATABASE__URL", &url)], &args);

    refused.assert_refused(1, &["the database is not reachable", "check that it runs and that database.url is right"]);
}

#[test]
fn settings_that_are_not_understood_refuse_to_start() {
    let place = Place::sqlite();
    let unknown = place.write("unknown.toml", "[limits]\nmesage_size = \"5 MB\"\n");
    let broken = place.write("broken.toml", "limits = [\n");
    let unit = place.write("unit.toml", "[limits]\nmessage_size = \"5 bananas\"\n");
    let secret = format!("mysql://u:{PASSWORD}@h/db");

    for (file, says) in [
        (&unknown, "unknown setting `limits.mesage_size`"),
        (&unknown, "did you mean `limits.message_size`?"),
        (&broken, "broken.toml"),
        (&unit, "`limits.message_size` wants a size like \"50 MB\", not 5 bananas"),
        (&"absent.toml".to_owned(), "absent.toml"),
    ] {
        place.run(&["tenant", "list", "--config", file]).assert_refused(2, &[says]);
    }
    for (name, value, says) in [
        ("MAILROOM_DATABSE__URL", "x", "did you mean `database.url`, which is MAILROOM_DATABASE__URL?"),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50", "wants a unit after 50, one of B, KB, MB"),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50 MW", "wants a size like \"50 MB\""),
        ("MAILROOM_IMPORT__IN_FLIGHT", "lots", "wants a whole number from 1 to 64"),
        ("MAILROOM_DATABASE__URL", &secret, "wants sqlite://PATH or postgres://"),
        ("MAILROOM_BLOBS__URL", "s3://bucket", "s3:// is not supported by this release"),
    ] {
        place.run_with(&[(name, value)], &["tenant", "list"]).assert_refused(2, &[says]);
    }
    assert!(!place.data_dir().exists(), "nothing is made before the settings are understood");
}

/// Somebody without rights: another user when we are root, ourselves otherwise.
struct Nobody {
    program: String,
    is_another: bool,
}

impl Nobody {
    fn new(place: &Place) -> Self {
        fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
        if !is_root() {
            return Self { program: PROGRAM.to_owned(), is_another: false };
        }
        // Where it is built may be closed to others.
        let program = place.path("mailroom").into_os_string().into_string().unwrap();
        fs::copy(PROGRAM, &program).unwrap();
        Self { program, is_another: true }
    }

    fn owns(&self, folder: &Path) {
        if self.is_another {
            let done = Done::of(Command::new("chown").arg("-R").arg("65534:65534").arg(folder));
            assert_eq!(done.code, Some(0), "{done}");
        }
    }

    fn run(&self, place: &Place, args: &[&str]) -> Done {
        if !self.is_another {
            return place.run(args);
        }
        let become_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", &self.program];
        Done::of(&mut place.command("setpriv", &[&become_nobody[..], args].concat()))
    }
}

#[test]
fn a_read_only_data_folder_is_told() {
    let place = Place::sqlite();
    let file = place.write("a.eml", simple("a", "b"));
    let nobody = Nobody::new(&place);
    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];
    fs::create_dir(place.data_dir()).unwrap();
    fs::set_permissions(place.data_dir(), Permissions::from_mode(0o555)).unwrap();

    let new = nobody.run(&place, &args);
    fs::set_permissions(place.data_dir(), Permissions::from_mode(0o755)).unwrap();
    place.import(&file);
    let more = place.write("b.eml", simple("c", "d"));
    set_read_only(&place.data_dir(), true);
    let old = nobody.run(&place, &["import", &more, "--tenant", "acme", "--mailbox", "me@acme.test"]);
    let doctor = nobody.run(&place, &["doctor"]);
    set_read_only(&place.data_dir(), false);

    new.assert_refused(1, &["cannot open or make the database", "check that the folder exists and can be written"]);
    old.assert_refused(1, &["cannot be written", "check the rights of the"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.text().contains("BAD  data folder"), "{doctor}");
    place.assert_whole();
    assert_eq!(place.emails("acme").len(), 1);
}

fn set_read_only(folder: &Path, is_read_only: bool) {
    let mode = if is_read_only { "a-w,a+rX" } else { "u+w" };
    let done = Done::of(Command::new("chmod").args(["-R", mode]).arg(folder));
    assert_eq!(done.code, Some(0), "{done}");
}

/// How to get a shell that may mount disks: as root, or as a user in a world of their own.
fn world_with_disks() -> Option<&'static [&'static str]> {
    let worlds = [&["--mount"][..], &["--user", "--map-root-user", "--mount"]];
    let try_it = "d=$(mktemp -d) && mount -t tmpfs tmpfs $d";
    let allows = |world: &&[&str]| {
        let tried = Command::new("unshare").args(*world).args(["sh", "-c", try_it]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    worlds.into_iter().find(allows)
}

/// Runs of the program in the script leave their exit code and output.
fn run_with_disks(place: &Place, world: &[&str], script: &str, variables: &[(&str, &str)]) {
    let run = r#"run() { local name=$1; shift; code=0; "$PROGRAM" "$@" >"$name.out" 2>"$name.err" || code=$?; echo $code >"$name.code"; }"#;
    let script = format!("set -eu\n{run}\n{script}");

    let mut shell = place.command("unshare", &[world, &["bash", "-c", &script]].concat());
    let ran = Done::of(shell.env("PROGRAM", PROGRAM).envs(variables.iter().copied()));

    assert_eq!(ran.code, Some(0), "{ran}");
}

fn ran(place: &Place, name: &str) -> Done {
    let read = |what: &str| fs::read(place.path(&format!("{name}.{what}"))).unwrap();
    let code = String::from_utf8(read("code")).unwrap().trim().parse().unwrap();
    Done::new(Some(code), read("out"), &read("err"))
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
fn a_read_only_disk_is_told() {
    // In a container that may not mount, a folder without rights is as near as we get.
    let Some(world) = world_with_disks() else { return a_read_only_data_folder_is_told() };
    on_each_database(|place| {
        place.write("a.eml", simple("a", "b"));
        place.write("b.eml", simple("c", "d"));
        fs::create_dir_all(place.data_dir()).unwrap();

        run_with_disks(place, world, ON_A_READ_ONLY_DISK, &[]);

        assert_eq!(ran(place, "first").code, Some(0));
        ran(place, "refused").assert_refused(1, &["cannot be written", "check the rights of the", "not read-only"]);
        assert_eq!(ran(place, "verify").code, Some(0));
        assert_eq!(ran(place, "again").code, Some(0));
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
const LEFT: [u64; 4] = [0, 100_000, 500_000, 2_000_000];

#[test]
fn a_full_disk_is_told_and_the_import_completes_when_there_is_room() {
    // In a container that may not mount, a system that says so is as near as we get.
    let Some(world) = world_with_disks() else { return a_write_without_room_is_told_wherever_it_falls() };
    on_each_database(|place| {
        const MESSAGES: usize = 200;
        place.write("mail.mbox", mbox(17, MESSAGES));
        fs::create_dir_all(place.data_dir()).unwrap();
        let left = LEFT.map(|bytes| bytes.to_string()).join(" ");

        run_with_disks(place, world, ON_A_FULL_DISK, &[("LEFT", &left), ("MAILROOM_IMPORT__BATCH_MESSAGES", "25")]);

        let mut refused = 0;
        for left in LEFT {
            let full = ran(place, &format!("full-{left}"));
            if full.code != Some(0) {
                refused += 1;
                full.assert_refused(1, &["there is no space left for", "; free some and run the command again"]);
            }
            let verified = ran(place, &format!("verify-{left}"));
            assert_eq!(verified.code, Some(0), "after {left} bytes: {verified}");
        }
        assert!(refused >= 2, "the disk was hardly ever full");
        let again = ran(place, "again");
        assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""), "{again}");
        assert_eq!(again.objects()[0]["read"], MESSAGES);
        assert_eq!(ran(place, "verify").objects()[0]["totals"]["emails"], MESSAGES);
        assert_eq!(ran(place, "once-more").objects()[0]["stored"], 0);
    });
}

/// The system says that there is no room from some call on: every write to the SQLite file, or every sync of a pack.
#[test]
fn a_write_without_room_is_told_wherever_it_falls() {
    on_each_database(|place| {
        let file = place.write("mail.mbox", mbox(18, 60));
        place.ok(&["tenant", "create", "acme"]);
        let (call, firsts) = if place.is_sqlite() { ("pwrite64", [1, 10, 60, 200]) } else { ("fsync", [1, 3, 4, 9]) };
        let import = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];

        for first in firsts {
            let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error=ENOSPC:when={first}+"));
            let args = ["-f", "-o", "/dev/null", "-e", &trace, "-e", &inject, PROGRAM];
            let mut strace = place.command("strace", &[&args[..], &import].concat());
            let full = Done::of(strace.env("MAILROOM_IMPORT__BATCH_MESSAGES", "10"));

            full.assert_refused(1, &["there is no space left for", "; free some and run the command again"]);
            place.assert_whole();
        }

        let again = place.object(&import[..6]);
        assert_eq!((&again["read"], &again["failed"]), (&json!(60), &json!(0)));
        assert_eq!(place.emails("acme").len(), 60);
        place.assert_whole();
    });
}
