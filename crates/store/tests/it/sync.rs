//! Sync leases: which process may record what a mailbox's provider lists.

use std::collections::HashMap;
use std::time::Duration;

use domain::connector::{Cursors, ListedFolder, Placement, SeenMessage};
use domain::{Flags, LedgerState, MailboxEvent, MailboxId, MailboxSettings, PlanTier, Provider, SystemClock};
use serde_json::json;
use store::bench::{self, StoredPlacement};
use store::failpoint::{Guard, VARIABLE};
use store::sql::mailboxes::NewMailbox;
use store::sql::sync::{ListingPhase, PageRows, SyncEnd};
use store::testing::{TestDatabase, migrated_sqlite, on_each_database};
use store::{Precondition, StoreError, TenantStore};

use crate::samples::tenant;

fn new_mailbox(address: &str) -> NewMailbox {
    NewMailbox {
        id: MailboxId::new(&SystemClock),
        provider: Provider::Gmail,
        address: address.into(),
        settings: MailboxSettings::default(),
        secret_ref: None,
        since: None,
    }
}

pub async fn mailbox(store: &TenantStore, address: &str) -> MailboxId {
    let new = new_mailbox(address);
    let id = new.id;
    let mut unit = store.write();
    unit.add_mailbox(new);
    unit.commit().await.unwrap();
    id
}

fn page(message: &str, cursor: &str) -> PageRows {
    let placement = Placement { folder: "in".into(), uid: message.into() };
    let folder =
        ListedFolder { id: "in".into(), name: "INBOX".into(), role: None, delimiter: None, uid_validity: None };
    PageRows {
        phase: ListingPhase::Changes,
        folders: vec![(folder, true)],
        missing_folders: vec![],
        confirmed_missing_folders: vec![],
        messages: vec![SeenMessage {
            message: message.into(),
            placement,
            flags: Flags::default(),
            size_bytes: None,
            received_at: None,
            revision: None,
        }],
        fully_placed: Vec::new(),
        outdated_placements: Vec::new(),
        unchanged: Vec::new(),
        removed_placements: vec![],
        binds_by_content: false,
        snapshots: vec![],
        cursors: Cursors::from([(String::new(), cursor.into())]),
        listing: None,
        is_comparison_done: false,
        is_history_done: false,
        new_messages: 1,
        is_backfill: false,
        excluded_folders: vec![],
    }
}

/// Begins a sync and returns its token.
async fn begin(db: &TestDatabase, store: &TenantStore, mailbox: MailboxId, holder: &str) -> Option<u64> {
    let key = (store.id, mailbox);
    let begun = db.store.system().begin_syncs(&[key], holder, Duration::from_secs(60)).await.unwrap();
    begun.get(&key).map(|begun| begun.token)
}

#[tokio::test]
async fn batch_sync_skips_mailboxes_held_by_others() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let (acme, other) = (tenant(&db.store, "acme").await.id, tenant(&db.store, "other").await.id);
        let mut keys = Vec::new();
        for (tenant, n) in [(acme, 1), (other, 2), (acme, 3)] {
            keys.push((tenant, mailbox(&db.store.tenant(tenant), &format!("{n}@acme.test")).await));
        }
        db.run(&format!(
            "insert into sync_cursors (tenant_id, mailbox_id, phase, scope, cursor) values ('{}', '{}', 'changes', 'x', '5')",
            other, keys[1].1
        ))
        .await;
        let held = begin(&db, &db.store.tenant(acme), keys[0].1, "somebody").await.unwrap();
        // A key with the wrong tenant is no mailbox.
        keys.push((acme, keys[1].1));

        let begun = system.begin_syncs(&keys, "me", Duration::from_secs(60)).await.unwrap();
        assert!(begun.len() == 2 && begun.contains_key(&keys[1]) && begun.contains_key(&keys[2]), "{begun:?}");
        assert_eq!(begun[&keys[1]].cursors["changes"], Cursors::from([("x".to_owned(), "5".to_owned())]));
        assert!(begun[&keys[2]].cursors.is_empty());

        let mut tokens: Vec<_> = begun.iter().map(|(key, begun)| (*key, begun.token)).collect();
        tokens.push((keys[0], held + 1));
        system.end_unchanged_syncs(&tokens).await.unwrap();
        let left = db.rows("select 1 from sync_states where held_until is not null and holder = 'somebody'").await;
        assert_eq!(left.len(), 1, "not by a token that is not the holder's");
        assert_eq!(db.rows("select 1 from sync_states where last_sync_at is not null").await.len(), 2);

        let opened = system.open_mailboxes(&keys).await.unwrap();
        assert_eq!(opened.len(), 3);
        assert_eq!(opened[&keys[1]].mailbox.address, "2@acme.test");
    })
    .await;
}

#[tokio::test]
async fn superseded_sync_records_nothing() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        let mailbox = mailbox(&store, "me@acme.test").await;
        let record = async |token: u64, message: &str, cursor: &str| {
            let mut unit = store.write();
            unit.guard_sync(mailbox, token);
            unit.record_page(mailbox, page(message, cursor));
            unit.commit().await.map(drop)
        };
        let first = begin(&db, &store, mailbox, "one").await.unwrap();
        assert_eq!(begin(&db, &store, mailbox, "two").await, None);
        record(first, "a", "1").await.unwrap();

        db.run("update sync_states set held_until = null").await; // as when it ran out
        let second = begin(&db, &store, mailbox, "two").await.unwrap();
        assert!(second > first);
        record(second, "b", "2").await.unwrap();
        let late = record(first, "c", "1").await;
        assert!(matches!(late, Err(StoreError::Precondition(Precondition::SyncTakenOver))), "{late:?}");
        assert!(!store.renew_sync(mailbox, first, Duration::from_secs(60)).await.unwrap());

        assert_eq!(db.rows("select 1 from sync_cursors where cursor = '2'").await.len(), 1);
        assert_eq!(db.rows("select 1 from ledger").await.len(), 2);
        assert_eq!(db.rows("select 1 from placements").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn last_new_message_is_recorded_by_the_syncs_holder() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        let mailbox = mailbox(&store, "me@acme.test").await;
        let token = begin(&db, &store, mailbox, "one").await.unwrap();
        let record = async |token: u64, last: Option<&str>| {
            let mut unit = store.write();
            unit.guard_page(mailbox, token, last);
            unit.commit().await.map(drop)
        };
        let last = async || store.find_sync_state(mailbox).await.unwrap().unwrap().last_message_id;
        assert_eq!(last().await, None);

        record(token, Some("m1")).await.unwrap();
        record(token, None).await.unwrap();
        record(token - 1, Some("m2")).await.unwrap_err();
        assert_eq!(last().await.as_deref(), Some("m1"));

        let mut unit = store.write();
        unit.restart_sync(mailbox);
        unit.commit().await.unwrap();
        assert_eq!(last().await, None, "it was of another account");
    })
    .await;
}

#[test]
fn superseded_sync_records_without_the_token() {
    let program = std::env::current_exe().unwrap();
    let outcome = std::process::Command::new(program)
        .args(["--exact", "sync::superseded_sync_records_nothing"])
        .env(VARIABLE, format!("off={}", Guard::SyncToken.name()))
        .output()
        .unwrap();
    assert!(!outcome.status.success(), "the token guards nothing");
}

#[tokio::test]
async fn only_readable_mailboxes_become_due() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let store = db.store.tenant(acme);
        let [one, two] = [mailbox(&store, "1@acme.test").await, mailbox(&store, "2@acme.test").await];
        let due = async || -> Vec<MailboxId> {
            system.list_due_mailboxes(10, &[]).await.unwrap().into_iter().map(|due| due.mailbox).collect()
        };
        assert_eq!(due().await, [one, two]);

        let mut unit = system.write_for(acme);
        unit.reschedule_syncs(&[(one, Duration::from_secs(300))]);
        unit.commit().await.unwrap();
        assert_eq!(due().await, [two]);
        let mut unit = system.write_for(acme);
        unit.reschedule_syncs(&[(one, Duration::from_secs(300)), (two, Duration::from_secs(300))]);
        let late = unit.commit().await;
        assert!(
            matches!(late, Err(StoreError::Precondition(Precondition::SyncsAlreadyRequested))),
            "another scheduler was first: {late:?}"
        );
        assert_eq!(due().await, [two]);

        let mut unit = store.write();
        unit.apply_mailbox_event(two, MailboxEvent::CredentialsRefused, Some("no"));
        unit.commit().await.unwrap();
        assert!(due().await.is_empty());

        let mut unit = store.write();
        unit.add_mailbox(new_mailbox("1@acme.test"));
        let again = unit.commit().await;
        assert!(matches!(again, Err(StoreError::Precondition(Precondition::MailboxExists))), "{again:?}");
        assert_eq!(db.rows("select 1 from sync_states").await.len(), 2);

        db.run("update sync_states set next_sync_at = null").await;
        let token = begin(&db, &store, one, "x").await.unwrap();
        let mut unit = store.write();
        unit.end_sync(one, token, SyncEnd::Failed("it is away"));
        unit.commit().await.unwrap();
        let state = store.find_sync_state(one).await.unwrap().unwrap();
        assert_eq!(
            (state.status.as_str(), state.error_count, state.last_error.as_deref()),
            ("error", 1, Some("it is away"))
        );
    })
    .await;
}

#[tokio::test]
async fn stored_placements_are_listed_to_their_tenant() {
    on_each_database(|db| async move {
        let [acme, other] = [tenant(&db.store, "acme").await.id, tenant(&db.store, "other").await.id];
        let (store, other) = (db.store.tenant(acme), db.store.tenant(other));
        let mailbox = mailbox(&store, "me@acme.test").await;
        let token = begin(&db, &store, mailbox, "me").await.unwrap();
        let mut rows = page("a", "1");
        rows.messages[0].flags = Flags::from_names(["seen", "flagged"]);
        let mut unit = store.write();
        unit.guard_sync(mailbox, token);
        unit.record_page(mailbox, rows);
        unit.commit().await.unwrap();

        let place = StoredPlacement {
            message: "a".into(),
            folder: "in".into(),
            uid: "a".into(),
            folder_name: "INBOX".into(),
            flags: vec!["flagged".into(), "seen".into()],
            state: LedgerState::Queued,
            email: None,
            is_deleted: false,
        };
        assert_eq!(bench::list_stored_placements(&store, mailbox).await.unwrap(), std::slice::from_ref(&place));
        assert_eq!(bench::count_live_emails(&store, mailbox).await.unwrap(), 0);
        assert_eq!(bench::list_stored_placements(&other, mailbox).await.unwrap(), []);
        db.run("update folders set gone_at = created_at").await;
        assert_eq!(
            bench::list_stored_placements(&store, mailbox).await.unwrap(),
            [StoredPlacement { is_deleted: true, ..place }]
        );
    })
    .await;
}

#[tokio::test]
async fn backfill_reports_progress_until_done() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        let (mailbox, other) = (mailbox(&store, "me@acme.test").await, mailbox(&store, "you@acme.test").await);
        let token = begin(&db, &store, mailbox, "me").await.unwrap();
        for (n, is_backfill) in [(1, true), (2, true), (3, true), (4, false)] {
            let mut unit = store.write();
            unit.guard_sync(mailbox, token);
            unit.record_page(mailbox, PageRows { is_backfill, ..page(&n.to_string(), "1") });
            unit.commit().await.unwrap();
        }
        let progress = async || store.list_backfills(Some(mailbox)).await.unwrap().remove(&mailbox);

        let listing = progress().await.unwrap();
        assert_eq!((listing.is_listed, listing.stored, listing.to_fetch), (false, 0, 3), "new mail does not count");
        assert_eq!(listing.per_second, None);
        assert!(store.list_backfills(None).await.unwrap().contains_key(&other), "it is not listed yet");

        let at = db.store.system().now().await.unwrap() - Duration::from_secs(60);
        let store_message = async |n: u32| {
            db.run(&format!(
                "update ledger set state = 'processed', processing_started_at = '{at:.3}', processing_completed_at = '{at:.3}'
                 where provider_message_id = '{n}'"
            ))
            .await;
        };
        store_message(1).await;
        store_message(2).await;
        db.run("update sync_states set is_history_done = true").await;
        let fetching = progress().await.unwrap();
        assert_eq!((fetching.is_listed, fetching.stored, fetching.to_fetch), (true, 2, 1));
        assert!(fetching.per_second.is_some_and(|rate| rate > 0.0 && rate <= 2.0 / 60.0), "{fetching:?}");
        assert_eq!(store.list_backfills(None).await.unwrap().len(), 1, "the other is done");

        store_message(3).await;
        assert_eq!(progress().await, None);
    })
    .await;
}

#[tokio::test]
async fn placements_of_a_message_are_found_by_index() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let finds = "explain query plan select exists (
                     select 1 from placements p where p.tenant_id = l.tenant_id and p.mailbox_id = l.mailbox_id
                     and p.provider_message_id = l.provider_message_id and p.is_live)
                 from ledger l where l.tenant_id = '' and l.mailbox_id = ''";
    // A process that opens the file later plans the same way.
    let later = TestDatabase { store: db.second_store(), location: db.location.clone() };
    for db in [&db, &later] {
        let plan = db.rows(finds).await;
        let plan: Vec<String> = plan.iter().map(|row| row.get(3).unwrap()).collect();
        assert!(plan.iter().any(|step| step.contains("placements_message")), "{plan:?}");
    }
}

#[tokio::test]
async fn pause_is_listed_until_it_ends() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        let (ours, other) = (mailbox(&store, "1@acme.test").await, mailbox(&store, "2@acme.test").await);
        let pause = async |seconds: u64, reason: &str| {
            let mut unit = store.write();
            unit.record_pause(ours, Duration::from_secs(seconds), reason);
            unit.commit().await.unwrap();
            store.find_sync_state(ours).await.unwrap().unwrap().paused.unwrap()
        };
        assert_eq!(store.find_sync_state(ours).await.unwrap().unwrap().paused, None);

        let first = pause(600, "one").await;
        assert_eq!(first.reason, "one");
        assert_eq!(pause(605, "two").await, first);
        assert_eq!(pause(60, "three").await, first, "what is known to last longer does");
        assert_eq!(store.list_pauses().await.unwrap(), HashMap::from([(ours, first.clone())]));
        let second = pause(900, "four").await;
        assert!(second.until > first.until && second.reason == "four", "{second:?}");

        let end = async |pause| {
            let mut unit = store.write();
            unit.end_pause(ours, pause);
            unit.commit().await.unwrap();
            store.find_sync_state(ours).await.unwrap().unwrap().paused
        };
        assert_eq!(end(&first).await.as_ref(), Some(&second), "another has begun");
        assert_eq!(end(&second).await, None);

        pause(900, "five").await;
        db.run("update sync_states set paused_until = mailroom_now()").await;
        assert_eq!(store.find_sync_state(ours).await.unwrap().unwrap().paused, None);
        assert_eq!(store.find_sync_state(other).await.unwrap().unwrap().paused, None);
        assert!(store.list_pauses().await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn deactivated_tenants_sync_records_nothing() {
    on_each_database(|db| async move {
        let store = tenant(&db.store, "acme").await;
        let mailbox = mailbox(&store, "me@acme.test").await;
        let token = begin(&db, &store, mailbox, "me").await.unwrap();

        assert!(db.store.system().set_tenant_active(store.id, false).await.unwrap());

        let mut unit = store.write();
        unit.guard_sync(mailbox, token);
        let refused = unit.commit().await.unwrap_err();
        assert!(matches!(refused, StoreError::Precondition(Precondition::SyncTakenOver)), "{refused}");
        assert!(!store.renew_sync(mailbox, token, Duration::from_secs(60)).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn deactivated_tenants_mailboxes_are_not_opened() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let mut keys = Vec::new();
        for name in ["off", "on"] {
            let store = tenant(&db.store, name).await;
            keys.push((store.id, mailbox(&store, "me@acme.test").await));
        }
        assert!(system.set_tenant_active(keys[0].0, false).await.unwrap());

        let opened = system.open_mailboxes(&keys).await.unwrap();
        assert_eq!(opened.keys().collect::<Vec<_>>(), [&keys[1]]);
        let begun = system.begin_syncs(&keys, "me", Duration::from_secs(60)).await.unwrap();
        assert_eq!(begun.keys().collect::<Vec<_>>(), [&keys[1]]);
        assert_eq!(system.list_sync_lags(Duration::from_secs(60)).await.unwrap().len(), 1);
        assert!(system.set_tenant_active(keys[1].0, false).await.unwrap());
        assert!(system.list_sync_lags(Duration::from_secs(60)).await.unwrap().is_empty(), "they are not overdue");
        assert!(system.set_tenant_active(keys[1].0, true).await.unwrap());

        assert!(system.set_tenant_active(keys[0].0, true).await.unwrap());
        assert_eq!(system.open_mailboxes(&keys).await.unwrap().len(), 2);
        let begun = system.begin_syncs(&keys, "me", Duration::from_secs(60)).await.unwrap();
        assert_eq!(begun.len(), 2, "a sync that was stopped has lost its lease");
    })
    .await;
}

#[tokio::test]
async fn unfetched_messages_exclude_dead_letters() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let mut keys = Vec::new();
        for name in ["acme", "other"] {
            let store = tenant(&db.store, name).await;
            let mailbox = mailbox(&store, "me@acme.test").await;
            for message in ["a", "b"] {
                let mut unit = store.write();
                unit.record_page(mailbox, page(message, "1"));
                unit.commit().await.unwrap();
            }
            keys.push((store.id, mailbox));
        }
        db.run("delete from jobs").await;
        let (acme, ours) = keys[0];
        let found = async |only| {
            let mut found = system.list_mailboxes_without_fetches(only).await.unwrap();
            found.sort_unstable();
            found
        };
        assert_eq!(found(None).await, keys);
        assert_eq!(found(Some(acme)).await, keys[..1]);

        let payload = json!({"mailbox": ours, "messages": ["a"]});
        db.run(&format!(
            "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, token, attempt, abandoned, created_at, ended_at)
             values ('{acme}', '{acme}', 'fetch_emails', 1, 'dead', '{payload}', 3, 0, 3, mailroom_now(), mailroom_now())"
        ))
        .await;
        assert_eq!(found(None).await, keys, "there is more than that");
        let mut open = Vec::new();
        for (tenant, mailbox) in keys {
            open.push(db.store.tenant(tenant).list_unfetched_messages(mailbox, 10).await.unwrap());
        }
        assert_eq!(open, [vec!["b"], vec!["a", "b"]]);
    })
    .await;
}

/// The lag of IMAP mailboxes with an interval of a minute, rounded to minutes.
async fn lag_minutes(db: &TestDatabase) -> u64 {
    let lags = db.store.system().list_sync_lags(Duration::from_secs(60)).await.unwrap();
    let seconds = lags.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    (seconds / 60.0).round() as u64
}

#[tokio::test]
async fn lag_counts_from_the_last_successful_sync() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        mailbox(&store, "me@acme.test").await;
        let now = db.store.system().now().await.unwrap();
        let minutes_ago = |minutes: u64| now - Duration::from_secs(60 * minutes);
        let hour_later = now + Duration::from_secs(3600);
        let synced = async |minutes: u64| {
            db.run(&format!("update sync_states set last_sync_at = '{:.3}'", minutes_ago(minutes))).await;
        };
        db.run(&format!(
            "update mailboxes set created_at = '{0:.3}', state_since = '{0:.3}', state = 'active'",
            minutes_ago(10_000)
        ))
        .await;
        db.run(&format!("update sync_states set next_sync_at = '{hour_later:.3}'")).await;

        synced(1).await;
        assert_eq!(lag_minutes(&db).await, 0, "it is in time");
        // No worker runs: the scheduler plans the next poll all the same.
        synced(61).await;
        assert_eq!(lag_minutes(&db).await, 60);
        // The provider is down: the next poll is put off again and again.
        db.run(&format!("update mailboxes set state = 'error', state_since = '{now:.3}'")).await;
        db.run("update sync_states set status = 'error', error_count = 5").await;
        assert_eq!(lag_minutes(&db).await, 60);
        db.run(r#"update mailboxes set settings = '{"interval_seconds": 1800}'"#).await;
        assert_eq!(lag_minutes(&db).await, 28, "a longer interval of its own, with jitter");
        db.run(r#"update mailboxes set settings = '{"interval_seconds": "often"}'"#).await;
        assert!(lag_minutes(&db).await >= 60, "an invalid interval hides nothing");
        // No scheduler runs.
        synced(1).await;
        db.run(&format!("update sync_states set next_sync_at = '{:.3}'", minutes_ago(20))).await;
        assert_eq!(lag_minutes(&db).await, 20);
        // Paused by its owner for long, and resumed just now.
        synced(10_000).await;
        db.run(&format!("update mailboxes set state = 'active', state_since = '{now:.3}'")).await;
        db.run(&format!("update sync_states set next_sync_at = '{now:.3}'")).await;
        assert_eq!(lag_minutes(&db).await, 0);
        db.run("update mailboxes set state = 'paused'").await;
        assert_eq!(lag_minutes(&db).await, 0, "it is not synced at all");

        let counts = db.store.system().count_mailboxes().await.unwrap();
        assert!(matches!(&counts[..], [(_, state, 1)] if state == "paused"), "{counts:?}");
    })
    .await;
}
