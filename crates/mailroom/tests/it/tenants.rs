//! P7: no tenant sees another.

use serde_json::Value;

use crate::mail::simple;
use crate::place::on_each_database;

#[test]
fn another_tenants_mail_is_as_good_as_none() {
    on_each_database(|place| {
        let file = place.write("a.eml", simple("Secret plan", "for nobody else"));
        place.import(&file);
        place.ok(&["tenant", "create", "other"]);
        let email = place.emails("acme").remove(0);
        let id = email["id"].as_str().unwrap();
        let mut absent = id.to_owned();
        absent.replace_range(30.., if id.ends_with("000000") { "111111" } else { "000000" });

        for format in [&["--json"][..], &["--raw"], &[]] {
            let theirs = place.run(&[&["email", "show", id, "--tenant", "other"], format].concat());
            let nobodys = place.run(&[&["email", "show", &absent, "--tenant", "other"], format].concat());

            theirs.assert_refused(1, &["this tenant has no email"]);
            assert_eq!(theirs.stderr, nobodys.stderr.replace(&absent, id));
            assert_eq!(theirs.code, nobodys.code);
        }
        assert_eq!(place.emails("other"), Vec::<Value>::new());
        for query in ["secret", "-nothing", "label:inbox", "after:1990", "from:ann"] {
            assert_eq!(place.objects(&["search", query, "--tenant", "other"]), Vec::<Value>::new(), "{query}");
        }
        let mailbox = email["mailbox_id"].as_str().unwrap();
        for mailbox in [mailbox, "me@acme.test"] {
            let refused = place.run(&["search", "", "--tenant", "other", "--mailbox", mailbox]);
            refused.assert_refused(1, &["this tenant has no mailbox"]);
        }
        // The cursor of one tenant's search shows nothing to another.
        let ours = place.run(&["search", "", "--tenant", "other", "--cursor", id, "--json"]);
        assert_eq!((ours.code, ours.text().as_str()), (Some(0), ""));
    });
}

#[test]
fn the_same_mail_in_two_tenants_is_stored_for_each() {
    on_each_database(|place| {
        let file = place.write("a.eml", simple("Shared", "bytes"));

        for tenant in ["acme", "other"] {
            let summary = place.object(&["import", &file, "--tenant", tenant, "--mailbox", "me@acme.test"]);
            assert_eq!(summary["stored"], 1);
        }

        let ids = ["acme", "other"].map(|tenant| place.emails(tenant)[0]["id"].clone());
        assert_ne!(ids[0], ids[1]);
        assert_eq!(place.packs().len(), 2, "blobs are never shared between tenants");
        place.assert_whole();
    });
}

#[test]
fn a_key_of_another_tenant_cannot_be_revoked() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        place.ok(&["tenant", "create", "other"]);
        let key = place.object(&["key", "create", "--tenant", "acme", "--name", "ci"]);
        let id = key["id"].as_str().unwrap();

        place.run(&["key", "revoke", id, "--tenant", "other"]).assert_refused(1, &["this tenant has no valid key"]);

        assert_eq!(place.object(&["key", "list", "--tenant", "acme"])["revoked_at"], Value::Null);
        assert_eq!(place.objects(&["key", "list", "--tenant", "other"]), Vec::<Value>::new());
    });
}
