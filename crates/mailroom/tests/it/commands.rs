//! The commands beside import, export, search and verify: for people and for programs.

use domain::Sha256;
use serde_json::json;

use crate::mail::{mbox, names, simple};
use crate::place::{PASSWORD, PROGRAM, Place, block_on, on_each_database};
use crate::processes::Running;

#[test]
fn every_command_has_help_with_an_example() {
    let place = Place::sqlite();
    let commands = |done: &str| -> Vec<String> {
        let list = done.split("Commands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
        let name = |line: &str| {
            line.strip_prefix("  ").filter(|l| !l.starts_with(' ')).and_then(|l| l.split(' ').next().map(str::to_owned))
        };
        list.lines().filter_map(name).filter(|name| name != "help").collect()
    };
    let top = commands(&place.ok(&["--help"]).text());
    let promised = [
        "demo",
        "migrate",
        "doctor",
        "config",
        "tenant",
        "mailbox",
        "directory",
        "user",
        "key",
        "import",
        "export",
        "search",
        "email",
        "verify",
        "backup",
        "restore",
        "gc",
        "retry-blobs",
        "serve",
        "jobs",
        "recurring",
        "dead-letters",
        "audit",
        "secrets",
        "sim",
        "bench",
    ];
    assert_eq!(top, promised);

    for command in &top {
        let help = place.ok(&[command, "--help"]).text();
        assert!(help.contains("Example"), "{command}: {help}");
        for inner in commands(&help) {
            let help = place.ok(&[command, &inner, "--help"]).text();
            assert!(help.contains("Example"), "{command} {inner}: {help}");
            assert!(help.contains("--config") && help.contains("--json"), "{command} {inner}");
        }
    }
}

#[test]
fn wrong_usage_is_told_with_exit_code_2() {
    let place = Place::sqlite();

    for args in [
        &["frobnicate"][..],
        &["import"],
        &["import", "x"],
        &["import", "x", "--tenant", "a", "--mailbox", "b@c.test", "--format", "pst"],
        &["search", "x"],
        &["search", "x", "--tenant", "a", "--limit", "many"],
        &["verify", "--mailbox", "x"],
        &["email", "show", "not-an-id", "--tenant", "a"],
        &["tenant", "create", " blanks around it "],
        &["tenant", "create", "a", "--plan", "gold"],
    ] {
        let done = place.run(args);
        assert_eq!(done.code, Some(2), "{args:?}: {done}");
        assert!(done.stderr.starts_with("error: "), "{args:?}: {done}");
    }
    assert!(!place.data_dir().join("blobs").exists() || place.tenants().is_empty());
}

#[test]
fn tenants_are_made_shown_and_switched() {
    on_each_database(|place| {
        let made = place.object(&["tenant", "create", "acme", "--plan", "vip"]);
        assert_eq!(
            names(&made),
            ["id", "name", "plan_tier", "is_active", "version", "created_at", "updated_at"].into_iter().collect()
        );
        assert_eq!(
            (&made["name"], &made["plan_tier"], &made["is_active"]),
            (&json!("acme"), &json!("vip"), &json!(true))
        );
        assert!(place.ok(&["tenant", "create", "beta"]).text().starts_with("Made tenant beta ("));

        place
            .run(&["tenant", "create", "acme"])
            .assert_refused(1, &["there is a tenant \"acme\" already; choose another"]);
        place.run(&["tenant", "show", "nobody"]).assert_refused(1, &["no tenant \"nobody\"; `mailroom tenant list`"]);

        assert_eq!(place.tenants().iter().map(|t| t["name"].clone()).collect::<Vec<_>>(), ["acme", "beta"]);
        let table = place.ok(&["tenant", "list"]).text();
        assert!(table.starts_with("name") && table.contains("vip") && table.contains("standard"), "{table}");
        let off = place.object(&["tenant", "deactivate", "acme"]);
        assert_eq!((&off["is_active"], &off["changed"]), (&json!(false), &json!(true)));
        assert_eq!(place.object(&["tenant", "deactivate", "acme"])["changed"], false);
        assert!(place.ok(&["tenant", "show", "acme"]).text().contains("inactive"));
        assert_eq!(place.ok(&["tenant", "activate", "acme"]).text(), "Tenant acme is now active.\n");
        let shown = place.object(&["tenant", "show", made["id"].as_str().unwrap()]);
        assert_eq!(names(&shown), ["tenant", "mailboxes", "totals"].into_iter().collect());
    });
}

#[test]
fn a_key_is_shown_once_and_only_its_hash_is_kept() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let args = ["key", "create", "--tenant", "acme", "--name", "ci", "--scopes", "read,write", "--expires", "90d"];

        let made = place.object(&args);
        let key = made["key"].as_str().unwrap();
        let second = place.ok(&args);

        assert!(key.starts_with("mr_tenant_") && second.text().starts_with("mr_tenant_"), "{second}");
        assert!(second.stderr.contains("shown only now"), "{second}");
        let hash = match place.is_sqlite() {
            true => "key_hash",
            false => "encode(key_hash, 'hex')",
        };
        let stored = place.select(&format!("select {hash} from api_keys order by created_at"));
        assert_eq!(stored[0], Sha256::of(key.as_bytes()).hex());
        let listed = place.objects(&["key", "list", "--tenant", "acme"]);
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[0]["scopes"], json!(["read", "write"]));
        let everything = format!("{listed:?}{}", place.ok(&["key", "list", "--tenant", "acme"]));
        let secret = &key[key.rfind('_').unwrap() + 1..];
        assert!(!everything.contains(secret));
        if place.is_sqlite() {
            for file in crate::place::files_below(&place.data_dir()) {
                let bytes = std::fs::read(file).unwrap();
                assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
            }
        }

        let id = made["id"].as_str().unwrap();
        assert_eq!(place.object(&["key", "revoke", id, "--tenant", "acme"])["revoked"], true);
        place
            .run(&["key", "revoke", id, "--tenant", "acme"])
            .assert_refused(1, &["no valid key", "`mailroom key list`"]);
        assert!(place.ok(&["key", "list", "--tenant", "acme"]).text().contains("revoked"));
        for (option, value, says) in [
            ("--scopes", "fly", "is not a scope; use any of"),
            ("--expires", "soon", "wants a duration like 90d"),
            ("--expires", "90", "wants a duration like 90d"),
        ] {
            let refused = place.run(&["key", "create", "--tenant", "acme", "--name", "x", option, value]);
            refused.assert_refused(2, &[says]);
        }
    });
}

#[test]
fn a_second_migration_changes_nothing() {
    for place in [Place::sqlite(), Place::empty_postgres()] {
        let check = place.run(&["migrate", "--check"]);
        check.assert_refused(1, &["the database schema is version 0", "run `mailroom migrate`"]);

        let first = place.object(&["migrate"]);
        let second = place.object(&["migrate"]);

        assert!(!first["applied"].as_array().unwrap().is_empty(), "{first}");
        assert_eq!(second["applied"], json!([]));
        let checked = place.object(&["migrate", "--check"]);
        assert_eq!(names(&checked), ["version", "needed", "up_to_date"].into_iter().collect());
        assert_eq!((&checked["version"], &checked["up_to_date"]), (&checked["needed"], &json!(true)));
        assert!(place.ok(&["migrate"]).text().contains("nothing changed"));
    }
}

#[test]
fn processes_that_migrate_at_once_agree() {
    for place in [Place::sqlite(), Place::empty_postgres()] {
        let running: Vec<Running> =
            (0..4).map(|_| Running::start(&mut place.command(PROGRAM, &["migrate", "--json"]))).collect();

        let applied = running.into_iter().map(|running| {
            let done = running.finish();
            assert_eq!(done.code, Some(0), "{done}");
            done.objects()[0]["applied"].as_array().unwrap().len()
        });

        assert_eq!(applied.filter(|count| *count > 0).count(), 1);
    }
}

#[test]
fn doctors_do_not_disturb_each_other() {
    let place = Place::sqlite();
    let blobs = store::blobs::Blobs::local(&place.data_dir().join("blobs")).unwrap();

    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| block_on(blobs.check()).unwrap()));
        }
    });

    assert!(place.packs().is_empty(), "a check leaves nothing behind");
}

#[test]
fn doctor_names_a_policy_that_was_dropped_and_migrate_brings_it_back() {
    let place = Place::postgres();
    place.import(&place.write("a.eml", simple("a", "b")));
    assert_eq!(place.ok(&["doctor"]).text().matches("isolation").count(), 1);

    place.sql("drop policy mailroom_tenant on emails; alter table packs disable row level security");

    let ill = place.run(&["doctor"]);
    assert_eq!(ill.code, Some(1), "{ill}");
    for what in ["the table emails lacks the policy mailroom_tenant", "the table packs has no row security"] {
        assert!(ill.text().contains(&format!("BAD  isolation      {what}")), "{ill}");
    }
    assert!(ill.text().contains("; run `mailroom migrate`, which puts it right"), "{ill}");
    // What could leave rows out is not dumped.
    place.run(&["backup", "--out", "kept"]).assert_refused(1, &["the dump might not be whole: the table emails lacks"]);

    place.ok(&["migrate"]);
    place.ok(&["doctor"]);
    assert_eq!(place.emails("acme").len(), 1);
}

#[test]
fn doctor_says_what_is_well_and_what_is_not() {
    on_each_database(|place| {
        let findings = place.objects(&["doctor"]);
        assert!(findings.iter().all(|finding| finding["ok"] == true), "{findings:?}");
        assert_eq!(names(&findings[0]), ["check", "ok", "detail"].into_iter().collect());
        assert!(place.ok(&["doctor"]).text().lines().all(|line| line.starts_with("ok ")));

        let blocked = format!("file://{}/blocked/blobs", place.path("").display());
        place.write("blocked", "a file where a folder should be");
        let ill = place.run_with(&[("MAILROOM_BLOBS__URL", &blocked)], &["doctor"]);
        assert_eq!(ill.code, Some(1), "{ill}");
        assert!(ill.text().contains("BAD  blobs"), "{ill}");
    });
}

#[test]
fn the_settings_in_force_are_shown_without_secrets() {
    let place = Place::sqlite();
    let url = format!("postgres://ada:{PASSWORD}@db.test:5432/mail");
    let file = place.write("mine.toml", "[limits]\nnesting = 7\n");
    let with_secret = [("MAILROOM_DATABASE__URL", url.as_str())];

    let shown = place.run_with(&with_secret, &["config", "show", "--config", &file, "--json"]);
    let table = place.run_with(&with_secret, &["config", "show", "--config", &file]);

    let settings = shown.objects();
    let setting = |key: &str| settings.iter().find(|setting| setting["key"] == key).unwrap();
    assert_eq!(setting("database.url")["value"], "postgres://ada:***@db.test:5432/mail");
    assert_eq!(setting("database.url")["source"], "MAILROOM_DATABASE__URL");
    assert_eq!(setting("limits.nesting")["value"], "7");
    assert!(setting("limits.nesting")["source"].as_str().unwrap().ends_with("mine.toml line 2"));
    assert_eq!(setting("log.level")["source"], "default");
    assert!(table.text().starts_with("setting") && table.text().contains("ada:***@"), "{table}");
    assert!(!place.data_dir().exists(), "showing settings makes nothing");
}

#[test]
fn commands_work_beside_a_running_import() {
    on_each_database(|place| {
        place.import(&place.write("first.eml", simple("First", "there already")));
        let file = place.write("all.mbox", mbox(14, 200));
        let args = ["import", &file, "--tenant", "busy", "--mailbox", "me@acme.test", "--json"];
        let mut running = Running::start(place.command(PROGRAM, &args).env("MAILROOM_IMPORT__BATCH_MESSAGES", "5"));

        let mut turns = 0;
        while turns == 0 || (!running.has_ended() && turns < 20) {
            turns += 1;
            place.ok(&["tenant", "create", &format!("made-{turns}")]);
            place.ok(&["key", "create", "--tenant", "acme", "--name", "k"]);
            assert_eq!(place.objects(&["search", "there", "--tenant", "acme"]).len(), 1);
            place.ok(&["verify", "--tenant", "acme", "--deep"]);
        }

        let done = running.finish();
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(done.objects()[0]["stored"], 200);
        place.assert_whole();
    });
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let place = Place::sqlite();
    place.import(&place.write("all.mbox", mbox(15, 100)));
    let line = format!("{PROGRAM} search '' --tenant acme --json --full | head -n 1; echo \"${{PIPESTATUS[0]}}\"");

    let done = crate::place::Done::of(&mut place.command("bash", &["-c", &line]));

    assert_eq!(done.stderr, "");
    assert_eq!(done.text().lines().last(), Some("0"));
}
