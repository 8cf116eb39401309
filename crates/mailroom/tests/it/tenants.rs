//! P7: no tenant sees another.

use serde_json::{Value, json};

use crate::installation::on_each_database;
use crate::mail::simple;

#[test]
fn mail_of_another_tenant_is_not_found() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("Secret plan", "for nobody else"));
        mailroom.import(&file);
        mailroom.ok(&["tenant", "create", "other"]);
        let email = mailroom.emails("acme").remove(0);
        let id = email["id"].as_str().unwrap();
        let mut absent = id.to_owned();
        absent.replace_range(30.., if id.ends_with("000000") { "111111" } else { "000000" });

        for format in [&["--json"][..], &["--raw"], &[]] {
            let theirs = mailroom.run(&[&["email", "show", id, "--tenant", "other"], format].concat());
            let nobodys = mailroom.run(&[&["email", "show", &absent, "--tenant", "other"], format].concat());

            theirs.assert_refused(1, &["this tenant has no email"]);
            assert_eq!(theirs.stderr, nobodys.stderr.replace(&absent, id));
            assert_eq!(theirs.code, nobodys.code);
        }
        assert_eq!(mailroom.emails("other"), Vec::<Value>::new());
        for query in ["secret", "-nothing", "label:inbox", "after:1990", "from:ann"] {
            assert_eq!(mailroom.objects(&["search", query, "--tenant", "other"]), Vec::<Value>::new(), "{query}");
        }
        let mailbox = email["mailbox_id"].as_str().unwrap();
        for mailbox in [mailbox, "me@acme.test"] {
            let refused = mailroom.run(&["search", "", "--tenant", "other", "--mailbox", mailbox]);
            refused.assert_refused(1, &["this tenant has no mailbox"]);
        }
        // The cursor of one tenant's search shows nothing to another.
        let ours = mailroom.run(&["search", "", "--tenant", "other", "--cursor", id, "--json"]);
        assert_eq!((ours.code, ours.text().as_str()), (Some(0), ""));
    });
}

#[test]
fn each_tenant_stores_its_own_copy() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("Shared", "bytes"));

        for tenant in ["acme", "other"] {
            let summary = mailroom.object(&["import", &file, "--tenant", tenant, "--mailbox", "me@acme.test"]);
            assert_eq!(summary["stored"], 1);
        }

        let ids = ["acme", "other"].map(|tenant| mailroom.emails(tenant)[0]["id"].clone());
        assert_ne!(ids[0], ids[1]);
        assert_eq!(mailroom.packs().len(), 2, "blobs are never shared between tenants");
        mailroom.assert_whole();
    });
}

#[test]
fn key_of_another_tenant_cannot_be_revoked() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        mailroom.ok(&["tenant", "create", "other"]);
        let key = mailroom.object(&["key", "create", "--tenant", "acme", "--name", "ci"]);
        let id = key["id"].as_str().unwrap();

        mailroom.run(&["key", "revoke", id, "--tenant", "other"]).assert_refused(1, &["this tenant has no valid key"]);

        assert_eq!(mailroom.object(&["key", "list", "--tenant", "acme"])["revoked_at"], Value::Null);
        assert_eq!(mailroom.objects(&["key", "list", "--tenant", "other"]), Vec::<Value>::new());
    });
}

#[test]
fn tenant_settings_are_set_shown_and_unset() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let options =
            ["--backfill", "90d", "--exclude", "Spam,Archive", "--interval", "10m", "--bytes-per-day", "500MB"];

        let set = mailroom.object(&[&["tenant", "set", "acme"], &options[..]].concat());

        let expected = json!({"backfill": "90d", "exclude": ["Spam", "Archive"], "interval_seconds": 600,
                              "bytes_per_day": 500_000_000});
        assert_eq!(set["settings"], expected);
        assert_eq!(mailroom.object(&["tenant", "show", "acme"])["tenant"]["settings"], expected);
        let unset = mailroom.object(&["tenant", "set", "acme", "--unset", "interval,bytes-per-day,exclude"]);
        assert_eq!(unset["settings"], json!({"backfill": "90d"}));
        for (wrong, says) in [
            (&["--interval", "60d"][..], "--interval must be from 1 to 2592000 seconds"),
            (&["--interval", "often"][..], "--interval must be a duration"),
            (&["--backfill", "some"][..], "--backfill must be all, none or a duration"),
            (&["--bytes-per-day", "2000000 GB"][..], "--bytes-per-day must be at most 1099511627776 bytes"),
            (&["--bytes-per-day", "much"][..], "--bytes-per-day must be a size such as"),
            (&[][..], "name a setting to change"),
        ] {
            mailroom.run(&[&["tenant", "set", "acme"], wrong].concat()).assert_refused(2, &[says]);
        }
        let again = mailroom.object(&["tenant", "set", "acme", "--backfill", "90d"]);
        assert_eq!(again["version"], unset["version"], "nothing was changed");
        let audit = mailroom.select("select entry from audit order by seq");
        assert!(audit.iter().any(|entry| entry.contains("\"interval_seconds\":600")), "{audit:?}");
    });
}

#[test]
fn mailbox_settings_are_set_and_inherited_again() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let password = mailroom.write("password", "p");
        let server = ["--host", "127.0.0.1", "--tls", "none", "--password-file", &password, "--no-check"];
        let add = ["mailbox", "add", "imap", "--tenant", "acme", "--address", "me@acme.test"];
        mailroom.ok(&[&add[..], &server[..]].concat());
        let set = ["mailbox", "set", "me@acme.test", "--tenant", "acme"];

        let own = mailroom.object(&[&set[..], &["--exclude", "Spam,Archive", "--interval", "10m"]].concat());
        let inherited = mailroom.object(&[&set[..], &["--unset", "interval,exclude"]].concat());

        assert_eq!(
            (&own["settings"]["exclude"], &own["settings"]["interval_seconds"]),
            (&json!(["Spam", "Archive"]), &json!(600))
        );
        assert_eq!(inherited["settings"], json!({"connection": own["settings"]["connection"]}));
        let again = mailroom.object(&[&set[..], &["--unset", "interval"]].concat());
        assert_eq!(again["version"], inherited["version"], "nothing was changed");
        mailroom.run(&set).assert_refused(2, &["name a setting to change"]);
        mailroom.run(&[&set[..], &["--interval", "60d"]].concat()).assert_refused(2, &["--interval must be from"]);
        let audit = mailroom.select("select cast(entry as text) from audit order by seq");
        assert_eq!(audit.iter().filter(|entry| entry.contains("\"mailbox.change\"")).count(), 2, "{audit:?}");
    });
}
