//! The commands beside import, export, search and verify: for people and for programs.

use domain::Sha256;
use serde_json::{Value, json};

use crate::installation::{PASSWORD, PROGRAM, TestInstallation, block_on, on_each_database};
use crate::mail::{mbox, names, simple};
use crate::processes::RunningProcess;

/// The commands that a help text lists.
fn listed_commands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let lines = list.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    lines.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_help_with_an_example() {
    let mailroom = TestInstallation::sqlite();
    let top = listed_commands(&mailroom.ok(&["--help"]).text());
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
        "sql",
        "email",
        "verify",
        "backup",
        "restore",
        "gc",
        "retry-blobs",
        "reindex",
        "serve",
        "jobs",
        "recurring",
        "dead-letters",
        "limits",
        "audit",
        "secrets",
        "sim",
        "bench",
    ];
    assert_eq!(top, promised);

    for command in &top {
        let help = mailroom.ok(&[command, "--help"]).text();
        assert!(help.contains("Example"), "{command}: {help}");
        for inner in listed_commands(&help) {
            let help = mailroom.ok(&[command, &inner, "--help"]).text();
            assert!(help.contains("Example"), "{command} {inner}: {help}");
            assert!(help.contains("--config") && help.contains("--json"), "{command} {inner}");
        }
    }
}

#[test]
fn limits_show_the_table_and_who_waits() {
    on_each_database(|mailroom| {
        let table = mailroom.ok(&["limits", "show"]).text();
        assert!(table.contains("circuit breaker") && table.contains("tenant at one IMAP server"), "{table}");

        mailroom.import(&mailroom.write("a.eml", simple("one", "an apple a day")));
        let none = mailroom.ok(&["limits", "show", "--tenant", "acme"]).text();
        assert!(none.ends_with("No mailbox of acme waits for a limit.\n"), "{none}");
        mailroom.sql(
            "insert into sync_states (tenant_id, mailbox_id, updated_at, paused_until, paused_reason)
             select tenant_id, id, updated_at, '2999-01-01T00:00:00.000Z', 'the provider asked to wait' from mailboxes",
        );
        let objects = mailroom.objects(&["limits", "show", "--tenant", "acme"]);
        assert_eq!(objects.last().unwrap()["reason"], "the provider asked to wait");
    });
}

#[test]
fn wrong_usage_ends_with_exit_code_2() {
    let mailroom = TestInstallation::sqlite();

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
        let done = mailroom.run(args);
        assert_eq!(done.code, Some(2), "{args:?}: {done}");
        assert!(done.stderr.starts_with("error: "), "{args:?}: {done}");
    }
    assert!(!mailroom.data_dir().join("blobs").exists() || mailroom.tenants().is_empty());
}

#[test]
fn tenant_is_created_shown_and_deactivated() {
    on_each_database(|mailroom| {
        let made = mailroom.object(&["tenant", "create", "acme", "--plan", "vip"]);
        assert_eq!(
            names(&made),
            ["id", "name", "plan_tier", "is_active", "settings", "version", "created_at", "updated_at"]
                .into_iter()
                .collect()
        );
        assert_eq!(
            (&made["name"], &made["plan_tier"], &made["is_active"]),
            (&json!("acme"), &json!("vip"), &json!(true))
        );
        assert!(mailroom.ok(&["tenant", "create", "beta"]).text().starts_with("Created tenant beta ("));

        mailroom
            .run(&["tenant", "create", "acme"])
            .assert_refused(1, &["there is already a tenant \"acme\"; choose another"]);
        mailroom
            .run(&["tenant", "show", "nobody"])
            .assert_refused(1, &["no tenant \"nobody\"; `mailroom tenant list`"]);

        assert_eq!(mailroom.tenants().iter().map(|t| t["name"].clone()).collect::<Vec<_>>(), ["acme", "beta"]);
        let table = mailroom.ok(&["tenant", "list"]).text();
        assert!(table.starts_with("name") && table.contains("vip") && table.contains("standard"), "{table}");
        let off = mailroom.object(&["tenant", "deactivate", "acme"]);
        assert_eq!((&off["is_active"], &off["changed"]), (&json!(false), &json!(true)));
        assert_eq!(mailroom.object(&["tenant", "deactivate", "acme"])["changed"], false);
        assert!(mailroom.ok(&["tenant", "show", "acme"]).text().contains("inactive"));
        assert_eq!(mailroom.ok(&["tenant", "activate", "acme"]).text(), "Tenant acme is now active.\n");
        mailroom.run(&["tenant", "delete", "beta"]).assert_refused(2, &["locked at once", "after 30 days", "--yes"]);
        assert!(mailroom.ok(&["tenant", "delete", "beta", "--yes"]).text().contains("`mailroom tenant undelete beta`"));
        assert!(mailroom.ok(&["tenant", "list"]).text().contains("deleted"));
        mailroom.run(&["tenant", "activate", "beta"]).assert_refused(1, &["is deleted", "`mailroom tenant undelete"]);
        assert_eq!(mailroom.object(&["tenant", "undelete", "beta"])["is_active"], true);
        mailroom.run(&["tenant", "undelete", "beta"]).assert_refused(1, &["not deleted"]);
        let shown = mailroom.object(&["tenant", "show", made["id"].as_str().unwrap()]);
        assert_eq!(names(&shown), ["tenant", "mailboxes", "totals"].into_iter().collect());
    });
}

#[test]
fn key_is_stored_only_as_a_hash() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let args = ["key", "create", "--tenant", "acme", "--name", "ci", "--scopes", "read,write", "--expires", "90d"];

        let made = mailroom.object(&args);
        let key = made["key"].as_str().unwrap();
        let second = mailroom.ok(&args);

        assert!(key.starts_with("mr_tenant_") && second.text().starts_with("mr_tenant_"), "{second}");
        assert!(second.stderr.contains("shown only now"), "{second}");
        let hash = if mailroom.is_sqlite() { "key_hash" } else { "encode(key_hash, 'hex')" };
        let stored = mailroom.select(&format!("select {hash} from api_keys order by created_at"));
        assert_eq!(stored[0], Sha256::of(key.as_bytes()).hex());
        let listed = mailroom.objects(&["key", "list", "--tenant", "acme"]);
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[0]["scopes"], json!(["read", "write"]));
        let everything = format!("{listed:?}{}", mailroom.ok(&["key", "list", "--tenant", "acme"]));
        let secret = &key[key.rfind('_').unwrap() + 1..];
        assert!(!everything.contains(secret));
        if mailroom.is_sqlite() {
            for file in crate::installation::files_below(&mailroom.data_dir()) {
                let bytes = std::fs::read(file).unwrap();
                assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
            }
        }

        let id = made["id"].as_str().unwrap();
        assert_eq!(mailroom.object(&["key", "revoke", id, "--tenant", "acme"])["revoked"], true);
        mailroom
            .run(&["key", "revoke", id, "--tenant", "acme"])
            .assert_refused(1, &["no valid key", "`mailroom key list`"]);
        assert!(mailroom.ok(&["key", "list", "--tenant", "acme"]).text().contains("revoked"));
        for (option, value, says) in [
            ("--scopes", "fly", "is not a scope; use any of"),
            ("--expires", "soon", "must be a duration such as 90d"),
            ("--expires", "90", "must be a duration such as 90d"),
        ] {
            let refused = mailroom.run(&["key", "create", "--tenant", "acme", "--name", "x", option, value]);
            refused.assert_refused(2, &[says]);
        }
    });
}

#[test]
fn second_migration_changes_nothing() {
    for mailroom in [TestInstallation::sqlite(), TestInstallation::empty_postgres()] {
        let check = mailroom.run(&["migrate", "--check"]);
        check.assert_refused(1, &["the database schema is version 0", "run `mailroom migrate`"]);

        let first = mailroom.object(&["migrate"]);
        let second = mailroom.object(&["migrate"]);

        assert!(!first["applied"].as_array().unwrap().is_empty(), "{first}");
        assert_eq!(second["applied"], json!([]));
        let checked = mailroom.object(&["migrate", "--check"]);
        assert_eq!(names(&checked), ["version", "needed", "up_to_date"].into_iter().collect());
        assert_eq!((&checked["version"], &checked["up_to_date"]), (&checked["needed"], &json!(true)));
        assert!(mailroom.ok(&["migrate"]).text().contains("nothing changed"));
    }
}

#[test]
fn concurrent_migrations_agree() {
    for mailroom in [TestInstallation::sqlite(), TestInstallation::empty_postgres()] {
        let running: Vec<RunningProcess> =
            (0..4).map(|_| RunningProcess::start(&mut mailroom.command(PROGRAM, &["migrate", "--json"]))).collect();

        let applied = running.into_iter().map(|running| {
            let done = running.finish();
            assert_eq!(done.code, Some(0), "{done}");
            done.objects()[0]["applied"].as_array().unwrap().len()
        });

        assert_eq!(applied.filter(|count| *count > 0).count(), 1);
    }
}

#[test]
fn concurrent_doctors_do_not_interfere() {
    let mailroom = TestInstallation::sqlite();
    let blobs = store::blobs::Blobs::local(&mailroom.data_dir().join("blobs")).unwrap();

    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| block_on(blobs.check()).unwrap()));
        }
    });

    assert!(mailroom.packs().is_empty(), "a check leaves nothing behind");
}

#[test]
fn migrate_restores_a_dropped_policy() {
    let mailroom = TestInstallation::postgres();
    mailroom.import(&mailroom.write("a.eml", simple("a", "b")));
    assert_eq!(mailroom.ok(&["doctor"]).text().matches("isolation").count(), 1);

    mailroom.sql("drop policy mailroom_tenant on emails; alter table packs disable row level security");

    let ill = mailroom.run(&["doctor"]);
    assert_eq!(ill.code, Some(1), "{ill}");
    for what in ["the table emails lacks the policy mailroom_tenant", "the table packs has no row security"] {
        assert!(ill.text().contains(&format!("BAD  isolation      {what}")), "{ill}");
    }
    assert!(ill.text().contains("; run `mailroom migrate`, which puts it right"), "{ill}");
    // What could leave rows out is not dumped.
    mailroom
        .run(&["backup", "--out", "kept"])
        .assert_refused(1, &["the dump might not be whole: the table emails lacks"]);

    mailroom.ok(&["migrate"]);
    mailroom.ok(&["doctor"]);
    assert_eq!(mailroom.emails("acme").len(), 1);
}

#[test]
fn doctor_reports_each_check() {
    on_each_database(|mailroom| {
        let findings = mailroom.objects(&["doctor"]);
        assert!(findings.iter().all(|finding| finding["ok"] == true), "{findings:?}");
        assert_eq!(names(&findings[0]), ["check", "ok", "detail"].into_iter().collect());
        assert!(mailroom.ok(&["doctor"]).text().lines().all(|line| line.starts_with("ok ")));

        let blocked = format!("file://{}/blocked/blobs", mailroom.path("").display());
        mailroom.write("blocked", "a file where a folder should be");
        let ill = mailroom.run_with(&[("MAILROOM_BLOBS__URL", &blocked)], &["doctor"]);
        assert_eq!(ill.code, Some(1), "{ill}");
        assert!(ill.text().contains("BAD  blobs"), "{ill}");
    });
}

fn find_setting<'a>(settings: &'a [Value], key: &str) -> &'a Value {
    settings.iter().find(|setting| setting["key"] == key).unwrap()
}

#[test]
fn settings_are_shown_with_secrets_masked() {
    let mailroom = TestInstallation::sqlite();
    let url = format!("postgres://ada:{PASSWORD}@db.test:5432/mail");
    let file = mailroom.write("mine.toml", "[limits]\nnesting = 7\n");
    let with_secret = [("MAILROOM_DATABASE__URL", url.as_str())];

    let shown = mailroom.run_with(&with_secret, &["config", "show", "--config", &file, "--json"]);
    let table = mailroom.run_with(&with_secret, &["config", "show", "--config", &file]);

    let settings = shown.objects();
    assert_eq!(find_setting(&settings, "database.url")["value"], "postgres://ada:***@db.test:5432/mail");
    assert_eq!(find_setting(&settings, "database.url")["source"], "MAILROOM_DATABASE__URL");
    assert_eq!(find_setting(&settings, "limits.nesting")["value"], "7");
    assert!(find_setting(&settings, "limits.nesting")["source"].as_str().unwrap().ends_with("mine.toml line 2"));
    assert_eq!(find_setting(&settings, "log.level")["source"], "default");
    assert!(table.text().starts_with("setting") && table.text().contains("ada:***@"), "{table}");
    assert!(!mailroom.data_dir().exists(), "showing settings makes nothing");
}

#[test]
fn variables_of_kubernetes_cost_one_warning() {
    let mailroom = TestInstallation::sqlite();
    let made = [("MAILROOM_PORT", "tcp://10.96.4.7:8025"), ("MAILROOM_SERVICE_HOST", "10.96.4.7")];

    let listed = mailroom.run_with(&made, &["tenant", "list"]);
    let mistyped = mailroom.run_with(&[("MAILROOM_PORT", "8025")], &["tenant", "list"]);

    assert_eq!(listed.code, Some(0), "{listed}");
    assert_eq!(listed.stderr.lines().filter(|line| line.contains("ignored variables that Kubernetes made")).count(), 1);
    assert_eq!(mistyped.code, Some(2), "{mistyped}");
}

#[test]
fn commands_work_during_an_import() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("first.eml", simple("First", "there already")));
        let file = mailroom.write("all.mbox", mbox(14, 200));
        let args = ["import", &file, "--tenant", "busy", "--mailbox", "me@acme.test", "--json"];
        let mut running =
            RunningProcess::start(mailroom.command(PROGRAM, &args).env("MAILROOM_IMPORT__BATCH_MESSAGES", "5"));

        let mut turns = 0;
        while turns == 0 || (!running.has_ended() && turns < 20) {
            turns += 1;
            mailroom.ok(&["tenant", "create", &format!("made-{turns}")]);
            mailroom.ok(&["key", "create", "--tenant", "acme", "--name", "k"]);
            assert_eq!(mailroom.objects(&["search", "there", "--tenant", "acme"]).len(), 1);
            mailroom.ok(&["verify", "--tenant", "acme", "--deep"]);
        }

        let done = running.finish();
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(done.objects()[0]["stored"], 200);
        mailroom.assert_whole();
    });
}

#[test]
fn closed_pipe_ends_a_command_quietly() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("all.mbox", mbox(15, 100)));
    let line = format!("{PROGRAM} search '' --tenant acme --json --full | head -n 1; echo \"${{PIPESTATUS[0]}}\"");

    let done = crate::installation::CommandOutput::of(&mut mailroom.command("bash", &["-c", &line]));

    assert_eq!(done.stderr, "");
    assert_eq!(done.text().lines().last(), Some("0"));
}

/// The operations that a command does. One without a case is a mistake.
fn operations_of(command: &str) -> &'static [&'static str] {
    match command {
        "tenant create" => &["tenant.create"],
        "tenant delete" => &["tenant.delete"],
        "tenant undelete" => &["tenant.undelete"],
        "tenant set" | "tenant activate" | "tenant deactivate" => &["tenant.change"],
        "mailbox add" => &["mailbox.create"],
        "mailbox set" => &["mailbox.change"],
        "mailbox sync" => &["mailbox.sync"],
        "mailbox apply-removals" => &["mailbox.apply_removals"],
        "mailbox pause" => &["mailbox.pause"],
        "mailbox resume" => &["mailbox.resume"],
        "mailbox remove" => &["mailbox.disconnect", "mailbox.erase"],
        "directory set" => &["directory.put"],
        "directory discover" => &["directory.discover"],
        "directory remove" => &["directory.delete"],
        "key create" => &["api_key.create"],
        "key revoke" => &["api_key.revoke"],
        "import" => &["tenant.create", "mailbox.create", "email.import"],
        "export" => &["email.export"],
        "email purge" => &["email.purge"],
        "email restore" => &["email.restore"],
        "reindex" => &["email.reindex"],
        "backup" => &["backup"],
        "jobs retry" => &["job.retry"],
        "jobs cancel" => &["job.cancel"],
        "jobs move" => &["job.move"],
        "jobs enqueue" => &["job.enqueue"],
        "jobs pause" => &["queue.pause"],
        "jobs resume" => &["queue.resume"],
        "jobs limit" => &["queue.limit"],
        "jobs weight" => &["queue.weight"],
        "recurring run" => &["recurring.run"],
        "recurring pause" => &["recurring.pause"],
        "recurring resume" => &["recurring.resume"],
        "dead-letters replay" => &["dead_letters.replay"],
        "dead-letters discard" => &["dead_letters.discard"],
        "secrets rotate" => &["secrets.rotate"],
        "sql grant" => &["sql_reader.grant"],
        "sql revoke" => &["sql_reader.revoke"],
        // What they show or check stays as it is.
        "config show" | "tenant list" | "tenant show" | "tenant usage" | "mailbox list" | "mailbox show"
        | "user list" | "directory show" | "key list" | "search" | "email show" | "verify" | "jobs stats"
        | "jobs list" | "jobs show" | "jobs why" | "recurring list" | "dead-letters list" | "dead-letters show"
        | "limits show" | "audit verify" | "doctor" | "sql list" => &[],
        // A link changes nothing; its consent does, and is on record then.
        "mailbox connect" | "mailbox authorize" => &[],
        // Upkeep that the service does as well, and what has no database to be on record in.
        "gc" | "retry-blobs" | "migrate" | "restore" | "serve" | "demo" | "sim" => &[],
        other if other.starts_with("bench ") => &[],
        other => panic!("{other} is neither an operation nor known to change nothing"),
    }
}

#[test]
fn every_changing_command_does_an_operation() {
    let mailroom = TestInstallation::sqlite();
    let known: Vec<&str> = engine::operations::ALL.iter().map(|operation| operation.name).collect();
    let mut done = Vec::new();

    for command in listed_commands(&mailroom.ok(&["--help"]).text()) {
        let inner = listed_commands(&mailroom.ok(&[&command, "--help"]).text());
        if inner.is_empty() {
            done.extend(operations_of(&command));
        }
        for inner in inner {
            done.extend(operations_of(&format!("{command} {inner}")));
        }
    }

    assert!(done.len() > 30 && done.iter().all(|operation| known.contains(operation)), "{done:?}");
}
