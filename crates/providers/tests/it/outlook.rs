//! What is special to Outlook: deltas that expire or get stuck, the probe, sweeps, and the calls that they take. What every
//! connector does is in `testkit::contract`.

use std::collections::{BTreeMap, BTreeSet};

use domain::connector::{Cursors, Placement};
use domain::{ConnectorError, FolderRole};
use serde_json::{Value, json};
use sim::microsoft::{MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute, OutlookOperation};
use testkit::contract::{ConnectorUnderTest, MailboxReplica, OutlookUnderTest, assert_replicated};

/// A mailbox that was synced once.
async fn synced_mailbox(messages: usize, seed: u64) -> (OutlookUnderTest, MailboxReplica) {
    let outlook = OutlookUnderTest::new(messages, seed).await;
    let mut replica = outlook.replica();
    replica.begin().await.unwrap();
    (outlook, replica)
}

/// The same fault of deltas of messages only.
fn of_deltas(fault: MicrosoftFault) -> MicrosoftFault {
    MicrosoftFault { route: Some(MicrosoftRoute::MessagesDelta), ..fault }
}

#[tokio::test]
async fn idle_sync_takes_one_call() {
    let (outlook, mut replica) = synced_mailbox(30, 3).await;
    replica.follow().await.unwrap();
    outlook.world.clear_requests();
    assert_eq!(replica.follow().await, Ok(0));
    assert_eq!(outlook.world.requests().all.routes, BTreeMap::from([(MicrosoftRoute::MessagesList, 1)]));
}

#[tokio::test]
async fn expired_delta_relists_only_its_folder() {
    let (outlook, mut replica) = synced_mailbox(150, 5).await;
    outlook.step(40);
    outlook.apply(OutlookOperation::ExpireDelta { folder: Some("inbox".to_owned()) });
    outlook.step(10);

    replica.sweep().await.unwrap();

    assert_replicated(&outlook, &replica);
}

/// The id of the inbox.
fn inbox(replica: &MailboxReplica) -> String {
    replica.folders().values().find(|folder| folder.role == Some(FolderRole::Inbox)).unwrap().id.clone()
}

/// Lets Graph refuse the next link without a code that we know.
fn refuse_one_link(outlook: &OutlookUnderTest) {
    let code = "BadRequest".to_owned();
    outlook.world.add_fault(of_deltas(MicrosoftFault::once(MicrosoftFaultKind::Resync { code })));
}

#[tokio::test]
async fn refused_next_link_restarts_its_round() {
    let (outlook, mut replica) = synced_mailbox(30, 53).await;
    for _ in 0..450 {
        outlook.apply(OutlookOperation::deliver());
    }
    let first = replica.connector.changes(&replica.account, &replica.changes).await.unwrap();
    assert!(!first.is_last && first.cursors.values().any(|cursor| cursor.starts_with("next ")));
    // Of this page only the cursors are kept: only the whole round has its messages.
    first.move_cursors(&mut replica.changes);

    refuse_one_link(&outlook);
    let second = replica.connector.changes(&replica.account, &replica.changes).await.unwrap();
    outlook.world.clear_faults();
    refuse_one_link(&outlook);
    replica.follow().await.unwrap();

    assert_eq!(second.folder_snapshots, [], "the folder is not read as a whole");
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn refused_next_link_restarts_the_first_round() {
    let (outlook, mut replica) = synced_mailbox(30, 59).await;
    let (inbox, message) = (inbox(&replica), outlook.apply(OutlookOperation::deliver()).messages.remove(0));
    let mut round: Value = serde_json::from_str(&replica.changes[""]).unwrap();
    round["left"] = json!([inbox]);
    round.as_object_mut().unwrap().remove("swept_at");
    replica.changes.insert(String::new(), round.to_string());
    let link = replica.changes[&inbox].replacen("delta ", "next ", 1);
    replica.changes.insert(inbox.clone(), link);

    refuse_one_link(&outlook);
    let page = replica.connector.changes(&replica.account, &replica.changes).await.unwrap();

    assert!(page.cursors[&inbox].starts_with("delta "), "{}", page.cursors[&inbox]);
    assert_eq!(page.folder_snapshots, [], "the folder is not read as a whole");
    assert!(page.relisted.iter().any(|seen| seen.message == message));
}

#[tokio::test]
async fn refused_link_of_a_plain_list_is_dropped() {
    let (outlook, replica) = synced_mailbox(30, 61).await;
    let inbox = inbox(&replica);
    let link = replica.changes[&inbox].strip_prefix("delta ").unwrap();
    let position = json!({"folder": inbox, "is_plain": true, "is_anew": true, "link": link});
    let mut cursors = Cursors::from([("mailbox".to_owned(), position.to_string())]);
    refuse_one_link(&outlook);
    let mut listed = BTreeSet::new();

    loop {
        let page = replica.connector.list(&replica.account, &cursors, Some(&replica.changes), None).await.unwrap();
        page.move_cursors(&mut cursors);
        listed.extend(page.seen.into_iter().map(|seen| seen.placement));
        if page.is_last {
            break;
        }
    }

    let mut expected = replica.placements();
    expected.retain(|placement| placement.folder == inbox);
    assert!(!expected.is_empty());
    assert_eq!(expected.difference(&listed).collect::<Vec<_>>(), Vec::<&Placement>::new());
}

#[tokio::test]
async fn stuck_folder_is_followed_by_the_probe() {
    let (outlook, mut replica) = synced_mailbox(50, 9).await;
    let fault = of_deltas(MicrosoftFault::always(MicrosoftFaultKind::DeltaQuota));
    outlook.world.add_fault(fault);
    replica.sweep().await.unwrap();
    let before = replica.message_ids().len();
    for _ in 0..3 {
        outlook.apply(OutlookOperation::deliver());
    }
    replica.follow().await.unwrap();
    assert_eq!(replica.message_ids().len(), before + 3);

    outlook.world.clear_faults();
    outlook.step(30);
    replica.sweep().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn moves_are_found_by_the_probe() {
    let (outlook, mut replica) = synced_mailbox(30, 4).await;
    let truth = outlook.mailbox();
    let id =
        truth.messages.iter().find(|(_, message)| message.folder.ends_with("Inbox") || !message.is_draft).unwrap().0;
    outlook.apply(OutlookOperation::Move { message: id.clone(), folder: "archive".to_owned() });
    replica.follow().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn empty_page_of_the_probe_hides_no_mail() {
    let (outlook, mut replica) = synced_mailbox(30, 6).await;
    replica.follow().await.unwrap();
    outlook.world.add_fault(MicrosoftFault {
        route: Some(MicrosoftRoute::MessagesList),
        ..MicrosoftFault::always(MicrosoftFaultKind::EmptyPage)
    });
    outlook.apply(OutlookOperation::deliver());
    replica.follow().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn changes_report_deletion_of_a_listed_message() {
    let (outlook, mut replica) = synced_mailbox(30, 11).await;
    replica.follow().await.unwrap();
    let before = replica.message_ids();
    outlook.apply(OutlookOperation::deliver());

    replica.compare().await.unwrap();

    assert_replicated(&outlook, &replica);
    let new = replica.message_ids().difference(&before).next().unwrap().clone();
    outlook.apply(OutlookOperation::Purge { message: new });
    replica.sweep().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn listing_ends_although_delta_keeps_expiring() {
    let outlook = OutlookUnderTest::new(500, 13).await;
    let mut replica = outlook.replica();
    replica.follow().await.unwrap();
    for count in [1, 3, 1000] {
        let fault = of_deltas(MicrosoftFault::always(MicrosoftFaultKind::DeltaExpired));
        outlook.world.add_fault(MicrosoftFault { count: Some(count), ..fault });

        replica.compare().await.unwrap();

        outlook.world.clear_faults();
        assert_replicated(&outlook, &replica);
    }
}

#[tokio::test]
async fn history_lists_a_repeated_message_once() {
    let outlook = OutlookUnderTest::new(100, 47).await;
    let mut replica = outlook.replica();
    replica.follow().await.unwrap();
    outlook.world.add_fault(of_deltas(MicrosoftFault::always(MicrosoftFaultKind::RepeatedItems)));
    let (mut cursors, mut listed) = (Cursors::new(), BTreeSet::new());
    loop {
        let page = replica.history(&mut cursors).await.unwrap();
        for seen in page.seen {
            assert!(listed.insert(seen.message.clone()), "{} is listed twice", seen.message);
        }
        if page.is_last {
            break;
        }
    }
    assert!(!listed.is_empty());
}

#[tokio::test]
async fn listing_goes_on_when_its_next_folder_is_removed() {
    for seed in 1..8 {
        let (outlook, mut replica) = synced_mailbox(40, seed).await;
        // All that can be removed, and so perhaps the one after the inbox, which comes first.
        for (folder, truth) in &outlook.mailbox().folders {
            if truth.well_known.is_none() && !truth.is_search && !truth.path.contains('/') {
                outlook.apply(OutlookOperation::DeleteFolder { folder: folder.clone(), purge: true });
            }
        }
        replica.compare().await.unwrap();
        assert_replicated(&outlook, &replica);
    }
}

#[tokio::test]
async fn list_by_date_skips_nothing_during_deletions() {
    let outlook = OutlookUnderTest::new(2_500, 17).await;
    let mut replica = outlook.replica();
    replica.follow().await.unwrap();
    outlook.world.add_fault(of_deltas(MicrosoftFault::always(MicrosoftFaultKind::DeltaQuota)));
    let (mut cursors, mut listed, mut pages) = (Cursors::new(), BTreeSet::new(), 0);
    loop {
        let page = replica.connector.list(&replica.account, &cursors, Some(&replica.changes), None).await.unwrap();
        page.move_cursors(&mut cursors);
        listed.extend(page.seen.iter().map(|seen| seen.message.clone()));
        pages += 1;
        if page.is_last {
            break;
        }
        // By counting, the next page would begin so many too late.
        for seen in page.seen.iter().take(20) {
            let purge = OutlookOperation::Purge { message: seen.message.clone() };
            drop(outlook.world.apply(OutlookUnderTest::ADDRESS, purge));
        }
    }

    let truth = outlook.mailbox();
    let folders: BTreeSet<&String> = replica.folders().keys().collect();
    let missed: Vec<_> = truth
        .messages
        .iter()
        .filter(|(_, message)| folders.contains(&message.folder_id))
        .filter(|(id, _)| !listed.contains(*id))
        .map(|(id, _)| id)
        .collect();
    assert_eq!(missed, Vec::<&String>::new());
    assert!(pages > folders.len(), "no folder had a second page");
    assert_eq!(outlook.world.violations(), []);
}

#[tokio::test]
async fn delta_that_keeps_expiring_is_not_retried_forever() {
    let (outlook, mut replica) = synced_mailbox(30, 17).await;
    outlook.world.add_fault(of_deltas(MicrosoftFault::always(MicrosoftFaultKind::DeltaExpired)));
    outlook.world.clear_requests();
    let refused = replica.sweep().await;
    assert!(matches!(refused, Err(ConnectorError::Unavailable(_))), "{refused:?}");
    let asked = outlook.world.requests().all.routes[&MicrosoftRoute::MessagesDelta];
    assert!(asked <= 10, "{asked}: some folders, each from its beginning as well");

    outlook.world.clear_faults();
    replica.follow().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn throttling_mid_page_keeps_progress_and_defers_calls() {
    let (outlook, mut replica) = synced_mailbox(30, 19).await;
    outlook.apply(OutlookOperation::deliver());
    // The probe has told of it by then.
    let kind = MicrosoftFaultKind::Throttled { retry_after: Some(3600) };
    outlook.world.add_fault(of_deltas(MicrosoftFault::once(kind)));

    let refused = replica.follow().await;

    let wait = match refused {
        Err(ConnectorError::Throttled { retry_after: Some(wait) }) => wait.as_secs(),
        other => panic!("{other:?}"),
    };
    assert!((3500..=3600).contains(&wait), "{wait}");
    assert_eq!(outlook.mailbox().messages.len(), replica.message_ids().len());
    outlook.world.clear_requests();
    assert!(matches!(replica.follow().await, Err(ConnectorError::Throttled { .. })));
    assert_eq!(outlook.world.requests().all.routes, BTreeMap::new(), "nobody was asked");
}

#[tokio::test]
async fn unreadable_message_leaves_its_old_placement() {
    let (outlook, mut replica) = synced_mailbox(30, 23).await;
    let truth = outlook.mailbox();
    let purged = truth.messages.keys().next().unwrap().clone();
    outlook.apply(OutlookOperation::Purge { message: purged });
    outlook.world.add_fault(MicrosoftFault {
        route: Some(MicrosoftRoute::MessagesGet),
        ..MicrosoftFault::always(MicrosoftFaultKind::AccessDenied)
    });
    replica.sweep().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn returned_message_survives_a_failed_read() {
    let (outlook, mut replica) = synced_mailbox(30, 43).await;
    let message = outlook.apply(OutlookOperation::deliver()).messages.remove(0);
    // In some rounds its old removal is repeated after its return.
    for _ in 0..40 {
        for folder in ["outbox", "inbox"] {
            outlook.apply(OutlookOperation::Move { message: message.clone(), folder: folder.to_owned() });
        }
        outlook.world.add_fault(MicrosoftFault {
            route: Some(MicrosoftRoute::MessagesGet),
            ..MicrosoftFault::once(MicrosoftFaultKind::Internal)
        });
        replica.sweep().await.unwrap();
        outlook.world.clear_faults();
        assert_replicated(&outlook, &replica);
    }
}

#[tokio::test]
async fn single_message_is_fetched_without_a_batch() {
    let (outlook, mut replica) = synced_mailbox(30, 29).await;
    outlook.world.clear_requests();
    outlook.apply(OutlookOperation::deliver());
    replica.follow().await.unwrap();
    let routes = outlook.world.requests().all.routes;
    assert_eq!(
        (routes.get(&MicrosoftRoute::Batch), routes.get(&MicrosoftRoute::FoldersDelta)),
        (None, None),
        "{routes:?}"
    );
    assert_eq!(routes[&MicrosoftRoute::MessagesValue], 1);
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn expiring_delta_does_not_block_the_first_sync() {
    let outlook = OutlookUnderTest::new(60, 31).await;
    let mut replica = outlook.replica();
    outlook.world.add_fault(of_deltas(MicrosoftFault::always(MicrosoftFaultKind::DeltaExpired)));
    replica.begin().await.unwrap();
    assert_replicated(&outlook, &replica);
    assert!(outlook.world.requests().all.routes[&MicrosoftRoute::MessagesDelta] < 100);

    outlook.world.clear_faults();
    outlook.step(20);
    replica.sweep().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn failing_folder_does_not_block_others() {
    let (outlook, mut replica) = synced_mailbox(60, 37).await;
    outlook.step(20);
    outlook.world.add_fault(of_deltas(MicrosoftFault::once(MicrosoftFaultKind::Internal)));
    // In the same call.
    replica.sweep().await.unwrap();
    assert_replicated(&outlook, &replica);
}

#[tokio::test]
async fn mail_in_many_new_folders_is_found() {
    let (outlook, mut replica) = synced_mailbox(120, 41).await;
    for n in 0..30 {
        let name = format!("new {n}");
        let made = outlook.apply(OutlookOperation::CreateFolder { name, parent: None });
        let folder = made.folder.unwrap();
        for message in outlook.mailbox().messages.keys().skip(n).take(1) {
            let to = OutlookOperation::Move { message: message.clone(), folder: folder.clone() };
            outlook.apply(to);
        }
    }
    // More than the probe tells of, and later.
    for message in outlook.mailbox().messages.keys().skip(40).take(70) {
        let mark = OutlookOperation::Mark { message: message.clone(), read: None, flagged: Some(true) };
        outlook.apply(mark);
    }
    outlook.apply(OutlookOperation::ExpireDelta { folder: None });
    replica.sweep().await.unwrap();
    assert_replicated(&outlook, &replica);
}
