//! The control API, as docs/providers/imap-simulator.md has it.

use serde_json::{Value, json};

use super::harness::{ANN, ImapHarness};

#[tokio::test]
async fn accounts_are_created_changed_and_listed() {
    let harness = ImapHarness::with_ann(4).await;
    harness.control_ok("POST", "accounts", json!({"count": 2, "messages": 3})).await;

    let items = harness.control_ok("GET", "accounts", Value::Null).await["items"].clone();
    assert_eq!(items[0], json!({"address": ANN, "messages": 4, "listeners": 0}));
    assert_eq!(items[2], json!({"address": "user2@imap.example", "messages": 3, "listeners": 0}));
    assert_eq!(harness.control("POST", "accounts", json!({"address": ANN})).await.status, 409);
    let uid = harness.apply(ANN, json!({"op": "deliver", "raw": "QTogYg0KDQo=", "flags": ["\\Seen"]})).await["uids"][0]
        .clone();
    harness.apply(ANN, json!({"op": "create_folder", "name": "Travel"})).await;
    harness.apply(ANN, json!({"op": "copy", "folder": "INBOX", "uid": uid, "to": "Travel"})).await;
    let truth = harness.control_ok("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
    assert_eq!(truth["folders"]["Travel"]["messages"]["1"]["flags"], json!(["\\Seen"]));
    let [one, other] = [("INBOX", uid.to_string()), ("Travel", "1".to_owned())]
        .map(|(folder, uid)| truth["folders"][folder]["messages"][uid]["email_id"].clone());
    assert_eq!(one, other, "a copy is the same email");
    harness.apply(ANN, json!({"op": "renumber", "folder": "Travel"})).await;
    let after = harness.control_ok("GET", &format!("accounts/{ANN}/truth"), Value::Null).await;
    assert_ne!(after["folders"]["Travel"]["uid_validity"], truth["folders"]["Travel"]["uid_validity"]);
    for (refused, status) in [
        (json!({"op": "expunge", "folder": "INBOX", "uid": 999}), 409),
        (json!({"op": "delete_folder", "folder": "INBOX"}), 409),
        (json!({"op": "deliver", "to": "?"}), 422),
    ] {
        assert_eq!(harness.control("POST", &format!("accounts/{ANN}/apply"), refused).await.status, status);
    }
}

#[tokio::test]
async fn control_api_sets_access_and_logs_requests() {
    let harness = ImapHarness::with_ann(1).await;
    let capabilities = harness.control_ok("GET", "capabilities", Value::Null).await["capabilities"].clone();
    assert!(capabilities.as_str().unwrap().contains("QRESYNC"));
    harness.control_ok("PUT", "capabilities", json!({"capabilities": "IMAP4rev1 IDLE"})).await;

    let mut program = harness.log_in().await;
    let told = program.ok("CAPABILITY").await;
    harness.control_ok("PUT", &format!("accounts/{ANN}/password"), json!({"password": "other"})).await;
    harness.control_ok("POST", &format!("accounts/{ANN}/disconnect"), Value::Null).await;

    assert_eq!(told, ["* CAPABILITY IMAP4rev1 IDLE"]);
    assert!(program.line().await.unwrap().starts_with("* BYE"));
    assert!(harness.connect().await.end(&format!("LOGIN {ANN} sim-password")).await.starts_with("NO"));
    harness.control_ok("PUT", &format!("accounts/{ANN}/mail-service"), json!({"enabled": false})).await;
    let refused = harness.connect().await.end(&format!("LOGIN {ANN} other")).await;
    assert!(refused.starts_with("NO [AUTHORIZATIONFAILED]"), "{refused}");
    let counted = harness.control_ok("GET", "requests", Value::Null).await;
    assert_eq!((&counted["all"]["routes"]["login"], &counted["all"]["statuses"]["403"]), (&json!(3), &json!(2)));
}

#[tokio::test]
async fn uids_stay_in_order_during_changes() {
    let harness = ImapHarness::with_ann(30).await;
    let mut highest = 0;

    for _ in 0..40 {
        harness.control_ok("POST", &format!("accounts/{ANN}/steps"), json!({"count": 20})).await;
        let truth = harness.world.truth(ANN).unwrap();
        let now = truth.folders.values().map(|folder| folder.highest_modseq).max().unwrap();
        assert!(now >= highest);
        highest = now;
        for folder in truth.folders.values() {
            assert!(folder.messages.keys().all(|uid| *uid < folder.uid_next));
        }
    }
}
