//! `reindex`: with a service and without one, killed and run again.

use std::fs;

use serde_json::json;
use store::failpoint::VARIABLE;

use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::jobs_killed::worker;
use crate::mail::{mbox, simple};
use crate::processes::RunningProcess;

/// A batch and a part of one.
const MESSAGES: usize = 250;

/// Removes every entry of the text index.
fn empty_the_index(mailroom: &TestInstallation) {
    mailroom.sql("delete from email_search");
}

/// Gives all emails the one token `outdatedtoken`, which no generated mail contains.
fn spoil_the_index(mailroom: &TestInstallation) {
    mailroom.sql(if mailroom.is_sqlite() {
        "delete from email_search; insert into email_search (rowid, tokens) select search_rowid, 'outdatedtoken' from emails"
    } else {
        "update email_search
         set tokens = ('outdatedtoken '':tenant:' || replace(tenant_id::text, '-', '') || '''')::tsvector"
    });
}

fn find(mailroom: &TestInstallation, tenant: &str, query: &str) -> usize {
    mailroom.objects(&["search", query, "--tenant", tenant]).len()
}

fn dated(subject: &str, date: &str) -> String {
    simple(subject, "an apple a day").replace("Tue, 02 Jan 2024", date)
}

#[test]
fn reindex_needs_no_service() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("one", "an apple a day")));
        let other = mailroom.write("b.eml", simple("two", "a plum"));
        mailroom.object(&["import", &other, "--tenant", "beta", "--mailbox", "b@beta.test"]);
        empty_the_index(mailroom);
        assert_eq!(mailroom.run(&["verify"]).code, Some(1));

        let done = mailroom.objects(&["reindex"]);

        assert_eq!(done[0], json!({"tenant": "acme", "examined": 1, "reindexed": 1, "unreadable": 0, "joined": false}));
        assert_eq!(done[1]["tenant"], "beta");
        assert_eq!((find(mailroom, "acme", "apple"), find(mailroom, "beta", "plum")), (1, 1));
        mailroom.assert_whole();
        assert_eq!(mailroom.ok(&["reindex", "--tenant", "acme"]).text(), "acme: 0 of 1 emails reindexed\n");
    });
}

#[test]
fn reindex_of_all_replaces_current_tokens() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("one", "an apple a day")));
        spoil_the_index(mailroom);
        assert_eq!(mailroom.object(&["reindex", "--tenant", "acme"])["reindexed"], 0);
        assert_eq!(find(mailroom, "acme", "outdatedtoken"), 1);

        assert_eq!(mailroom.object(&["reindex", "--tenant", "acme", "--all"])["reindexed"], 1);

        assert_eq!((find(mailroom, "acme", "outdatedtoken"), find(mailroom, "acme", "\"apple a day\"")), (0, 1));
        mailroom.assert_whole();
    });
}

#[test]
fn reindex_since_a_date_leaves_older_mail_alone() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("old.eml", dated("old", "Mon, 06 Jan 2020")));
        mailroom.import(&mailroom.write("new.eml", dated("new", "Mon, 06 Jan 2025")));
        empty_the_index(mailroom);

        assert_eq!(mailroom.object(&["reindex", "--tenant", "acme", "--since", "1d"])["examined"], 0);
        assert_eq!(mailroom.object(&["reindex", "--tenant", "acme", "--since", "2024-06"])["reindexed"], 1);
        assert_eq!((find(mailroom, "acme", "old apple"), find(mailroom, "acme", "new apple")), (0, 1));
        assert_eq!(mailroom.object(&["reindex", "--tenant", "acme"])["reindexed"], 1);

        mailroom.assert_whole();
    });
}

#[test]
fn background_reindex_is_left_to_the_service() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("one", "an apple a day")));
        empty_the_index(mailroom);

        let asked = mailroom.object(&["reindex", "--background"]);

        assert_eq!(asked, json!({"tenant": "acme", "outcome": "requested"}));
        assert_eq!(mailroom.object(&["reindex", "--background"])["outcome"], "live");
        let jobs = mailroom.objects(&["jobs", "list", "--kind", "reindex"]);
        assert_eq!(jobs.len(), 1);
        assert_eq!((&jobs[0]["lane"], &jobs[0]["payload"]["examined"]), (&json!("low"), &json!(0)));
        // The command waits for what the service does.
        let service = RunningProcess::start(&mut worker(mailroom, ""));
        mailroom.object(&["reindex"]);
        service.kill();
        assert_eq!(find(mailroom, "acme", "apple"), 1);
        mailroom.assert_whole();
    });
}

#[test]
fn killed_reindex_continues_when_it_is_run_again() {
    for new in [TestInstallation::sqlite, TestInstallation::postgres] {
        for failpoint in ["before:commit_job=crash", "after:commit_job=crash", "before:commit_job=crash@2"] {
            let mailroom = new();
            mailroom.import(&mailroom.write("all.mbox", mbox(41, MESSAGES)));
            spoil_the_index(&mailroom);
            let args = ["reindex", "--all", "--json"];

            let mut command = mailroom.command(PROGRAM, &args);
            let died = CommandOutput::of(command.env("MAILROOM_JOBS__LEASE", "1s").env(VARIABLE, failpoint));
            assert_eq!(died.code, None, "{failpoint}: {died}");
            let again = mailroom.run_with(&[("MAILROOM_JOBS__LEASE", "1s")], &args);

            assert_eq!(again.code, Some(0), "{failpoint}: {again}");
            let done =
                json!({"tenant": "acme", "examined": MESSAGES, "reindexed": MESSAGES, "unreadable": 0, "joined": true});
            assert_eq!(again.objects(), [done], "{failpoint}");
            assert_eq!(find(&mailroom, "acme", "outdatedtoken"), 0, "{failpoint}");
            mailroom.assert_whole();
        }
    }
}

#[test]
fn reindex_reports_originals_that_are_gone() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("one", "an apple a day")));
        spoil_the_index(mailroom);
        for pack in mailroom.packs() {
            fs::remove_file(pack).unwrap();
        }

        let told = mailroom.run(&["reindex", "--all"]);

        assert_eq!(told.code, Some(1), "{told}");
        assert!(told.text().contains("acme: 0 of 1 emails reindexed; 1 left as they were"), "{told}");
        assert_eq!(find(mailroom, "acme", "outdatedtoken"), 1);
    });
}

#[test]
fn reindex_refuses_what_it_cannot_do() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        mailroom.ok(&["tenant", "deactivate", "acme"]);

        mailroom
            .run(&["reindex", "--since", "yesterday"])
            .assert_refused(2, &["--since must be a date", "\"yesterday\""]);
        mailroom.run(&["reindex", "--tenant", "nobody"]).assert_refused(1, &["there is no tenant \"nobody\""]);
        mailroom.run(&["reindex", "--tenant", "acme"]).assert_refused(1, &["tenant acme is deactivated"]);
        assert!(mailroom.ok(&["reindex"]).text().starts_with("Nothing to reindex"));
    });
}
