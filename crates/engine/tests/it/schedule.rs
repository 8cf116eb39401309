//! Which mailboxes are looked at, and when.

use std::time::Duration;

use domain::{MailboxId, PlanTier, Provider, SystemClock, TenantId};
use engine::sync::schedule::{self, BACKLOG_LIMITS, PollIntervals, TickOutcome};
use jobs::noop::Noop;
use jobs::{RandomSource, SystemRandom, new_job};
use serde_json::{Value, json};
use store::sql::jobs::{BacklogVerdict, NewJob, TenantBacklog};
use store::sql::mailboxes::NewMailbox;
use store::testing::{TestDatabase, on_each_database};

#[derive(Debug)]
struct Always(u64);

impl RandomSource for Always {
    fn next_u64(&self) -> u64 {
        self.0
    }
}

async fn mailbox(db: &TestDatabase, tenant: TenantId, address: &str, settings: Value) -> MailboxId {
    mailbox_at(db, Provider::Outlook, tenant, address, settings).await
}

async fn mailbox_at(
    db: &TestDatabase,
    provider: Provider,
    tenant: TenantId,
    address: &str,
    settings: Value,
) -> MailboxId {
    let id = MailboxId::new(&SystemClock);
    let mut unit = db.store.tenant(tenant).write();
    let (address, settings) = (address.to_owned(), settings.into());
    unit.add_mailbox(NewMailbox { id, provider, address, settings, secret_ref: None, since: None });
    unit.commit().await.unwrap();
    id
}

const HOUR: Duration = Duration::from_secs(3600);
const HOURLY: PollIntervals = PollIntervals { usual: HOUR, relaxed: HOUR };

#[tokio::test]
async fn mailbox_inherits_the_interval_of_its_tenant() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let own = mailbox(&db, acme, "1@acme.test", json!({"interval_seconds": 60})).await;
        let inherits = mailbox(&db, acme, "2@acme.test", json!({})).await;
        db.run(r#"update tenants set settings = '{"interval_seconds": 600}'"#).await;

        schedule::tick(&db.store, &HOURLY, &Always(0)).await.unwrap();

        for (mailbox, expected) in [(own, 54.0), (inherits, 540.0)] {
            let state = db.store.tenant(acme).find_sync_state(mailbox).await.unwrap().unwrap();
            let next = state.next_sync_at.unwrap() - system.now().await.unwrap();
            let seconds = next.total(jiff::Unit::Second).unwrap();
            assert!((expected - 10.0..=expected).contains(&seconds), "{seconds}: nine tenths of its interval");
        }
    })
    .await;
}

#[tokio::test]
async fn due_mailbox_is_enqueued_once() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let often = mailbox(&db, acme, "1@acme.test", json!({"interval_seconds": 60})).await;
        mailbox(&db, acme, "2@acme.test", json!({})).await;

        let asked = TickOutcome { mailboxes: 2, ..TickOutcome::default() };
        assert_eq!(schedule::tick(&db.store, &HOURLY, &Always(0)).await.unwrap(), asked);
        let nothing = TickOutcome::default();
        assert_eq!(schedule::tick(&db.store, &HOURLY, &Always(0)).await.unwrap(), nothing);
        assert_eq!(db.rows("select 1 from jobs where kind = 'sync_mailbox'").await.len(), 2);

        let state = db.store.tenant(acme).find_sync_state(often).await.unwrap().unwrap();
        let next = state.next_sync_at.unwrap() - system.now().await.unwrap();
        assert!((50.0..=54.0).contains(&next.total(jiff::Unit::Second).unwrap()), "{next}: nine tenths of a minute");

        // Asked for again while it waits, it is still one job.
        store::bench::make_mailboxes_due(&system, None).await.unwrap();
        assert_eq!(schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap(), asked);
        assert_eq!(db.rows("select 1 from jobs where kind = 'sync_mailbox'").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn inactive_mailbox_is_not_scheduled() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let off = mailbox(&db, acme, "1@acme.test", json!({})).await;
        mailbox(&db, acme, "2@acme.test", json!({})).await;
        db.run(&format!("update mailboxes set is_active = false where id = '{off}'")).await;
        assert_eq!(system.list_due_mailboxes(10, &[]).await.unwrap().len(), 1);

        system.set_tenant_active(acme, false).await.unwrap();
        let nothing = TickOutcome::default();
        assert_eq!(schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap(), nothing);
    })
    .await;
}

/// So many jobs of the tenant wait, for a worker that there is.
async fn make_wait(db: &TestDatabase, tenant: TenantId, jobs: u64) {
    let system = db.store.system();
    system.register_worker("busy", &["x".to_owned()], Duration::from_secs(60)).await.unwrap();
    db.run(&match db.store.dialect() {
        store::Dialect::Postgres => format!(
            "insert into job_queues (tenant_id, lane, kind, waiting, is_active) values ('{tenant}', 2, 'x', {jobs}, true)"
        ),
        store::Dialect::Sqlite => {
            format!("insert into job_queues (tenant_id, lane, kind, waiting) values ('{tenant}', 2, 'x', {jobs})")
        }
    })
    .await;
}

/// Two tenants with so many mailboxes each.
async fn two_tenants(db: &TestDatabase, mailboxes: usize) -> [TenantId; 2] {
    let mut tenants = Vec::new();
    for name in ["acme", "other"] {
        let tenant = db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id;
        for n in 0..mailboxes {
            mailbox(db, tenant, &format!("{n}@{name}.test"), json!({})).await;
        }
        tenants.push(tenant);
    }
    tenants.try_into().unwrap()
}

#[tokio::test]
async fn long_backlog_slows_its_tenant() {
    on_each_database(|db| async move {
        let [acme, _] = two_tenants(&db, 51).await;
        make_wait(&db, acme, BACKLOG_LIMITS.slow_waiting + 1).await;

        for added in [51 + 50, 1, 0] {
            let ticked = schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap();
            assert_eq!((ticked.mailboxes, ticked.is_more), (added, false));
            let [TenantBacklog { tenant, verdict }] = &ticked.backlogs[..] else { panic!("{ticked:?}") };
            assert_eq!((*tenant, verdict.is_slow()), (acme, true));
            assert!(verdict.why().contains("jobs wait in lane normal"), "{verdict:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn too_long_backlog_stops_its_tenant() {
    on_each_database(|db| async move {
        let [acme, other] = two_tenants(&db, 2).await;
        make_wait(&db, acme, BACKLOG_LIMITS.stop_waiting + 1).await;

        let ticked = schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap();

        assert_eq!(ticked.mailboxes, 2);
        assert!(matches!(&ticked.backlogs[..], [TenantBacklog { tenant, verdict: BacklogVerdict::Stop { .. } }] if *tenant == acme));
        assert_eq!(db.rows(&format!("select 1 from jobs where tenant_id = '{other}'")).await.len(), 2);
        assert_eq!(db.rows("select 1 from jobs").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn job_of_an_unknown_kind_holds_nobody_back() {
    on_each_database(|db| async move {
        let [acme, _] = two_tenants(&db, 1).await;
        let old = "from_an_old_version";
        let mut unit = db.store.system().write_for(acme);
        unit.enqueue(vec![NewJob { kind: old.into(), ..new_job(&Noop {}, &SystemClock, None).unwrap() }]);
        unit.commit().await.unwrap();
        db.store.system().count_arrivals().await.unwrap();
        let long = BACKLOG_LIMITS.stop_age.as_micros() + 1;
        db.run(&format!("update jobs set position = position - {long}")).await;
        if db.store.dialect() == store::Dialect::Postgres {
            db.run(&format!("update job_queues set head = head - {long}")).await;
        }

        let ticked = schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap();
        assert_eq!(ticked, TickOutcome { mailboxes: 2, ..TickOutcome::default() });

        // Once a process knows it, it is a backlog of its tenant.
        db.store.system().register_worker("old", &[old.to_owned()], Duration::from_secs(60)).await.unwrap();
        store::bench::make_mailboxes_due(&db.store.system(), None).await.unwrap();
        let ticked = schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap();
        assert_eq!((ticked.mailboxes, ticked.backlogs.len()), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn polls_are_batched_by_tenant_and_provider() {
    on_each_database(|db| async move {
        let system = db.store.system();
        for (name, outlook, gmail, imap) in [("acme", 30, 1, 2), ("other", 3, 0, 0)] {
            let tenant = system.create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id;
            for (provider, count) in [(Provider::Outlook, outlook), (Provider::Gmail, gmail), (Provider::Imap, imap)] {
                for n in 0..count {
                    let address = format!("{}{n}@{name}.test", provider.as_str());
                    mailbox_at(&db, provider, tenant, &address, json!({})).await;
                }
            }
        }
        db.run("update mailboxes set state = 'active'").await;
        db.run("update sync_states set is_history_done = true").await;
        let acme = system.find_tenant("acme").await.unwrap().unwrap().id;
        let fresh = mailbox(&db, acme, "fresh@acme.test", json!({})).await;

        let asked = TickOutcome { mailboxes: 37, ..TickOutcome::default() };
        assert_eq!(schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap(), asked);

        let rows = db.rows("select kind, cast(payload as text) from jobs where kind = 'poll_mailboxes'").await;
        let polls: Vec<Value> =
            rows.iter().map(|row| serde_json::from_str(&row.get::<String>(1).unwrap()).unwrap()).collect();
        let mut sizes: Vec<(String, usize)> = polls
            .iter()
            .map(|poll| (poll["provider"].as_str().unwrap().to_owned(), poll["mailboxes"].as_array().unwrap().len()))
            .collect();
        sizes.sort();
        let expected = [("gmail", 1), ("outlook", 3), ("outlook", 5), ("outlook", 25)];
        assert_eq!(sizes, expected.map(|(provider, size)| (provider.to_owned(), size)));
        let own = db.rows("select cast(payload as text) from jobs where kind = 'sync_mailbox'").await;
        let own: Vec<String> = own.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(own.len(), 3, "those that have a connection, and the one that was never synced");
        assert!(own.iter().any(|payload| payload.contains(&fresh.to_string())));
    })
    .await;
}

async fn count_polls(db: &TestDatabase) -> usize {
    db.rows("select 1 from jobs where kind = 'poll_mailboxes'").await.len()
}

#[tokio::test]
async fn waiting_polls_of_a_tenant_stop_new_ones() {
    on_each_database(|db| async move {
        let system = db.store.system();
        for name in ["acme", "other"] {
            let tenant = system.create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id;
            for provider in [Provider::Outlook, Provider::Gmail] {
                mailbox_at(&db, provider, tenant, &format!("{}@{name}.test", provider.as_str()), json!({})).await;
            }
        }
        db.run("update mailboxes set state = 'active'").await;
        db.run("update sync_states set is_history_done = true").await;
        let asked = TickOutcome { mailboxes: 4, ..TickOutcome::default() };
        assert_eq!(schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap(), asked);
        assert_eq!(count_polls(&db).await, 4);
        let acme = system.find_tenant("acme").await.unwrap().unwrap().id;
        // Sent away again and again, it waits in no queue.
        db.run(&format!(
            "update jobs set created_at = '2026-01-01T00:00:00.000Z', state = 'retry', run_at = '2999-01-01T00:00:00.000Z'
             where tenant_id = '{acme}' and cast(payload ->> 'provider' as text) = 'gmail'"
        ))
        .await;

        store::bench::make_mailboxes_due(&system, None).await.unwrap();
        assert_eq!(schedule::tick(&db.store, &HOURLY, &SystemRandom).await.unwrap(), asked);

        assert_eq!(count_polls(&db).await, 7, "of all but that tenant at that provider");
        assert!(system.list_due_mailboxes(10, &[]).await.unwrap().is_empty(), "it is looked at when it is due again");
    })
    .await;
}

#[tokio::test]
async fn tenants_take_turns_among_due_mailboxes() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let large = system.create_tenant("large", PlanTier::Standard).await.unwrap().unwrap().id;
        for n in 0..10 {
            mailbox(&db, large, &format!("{n}@large.test"), json!({})).await;
        }
        let small = system.create_tenant("small", PlanTier::Standard).await.unwrap().unwrap().id;
        mailbox(&db, small, "me@small.test", json!({})).await;

        let due = system.list_due_mailboxes(2, &[]).await.unwrap();

        let tenants: std::collections::HashSet<TenantId> = due.iter().map(|due| due.tenant).collect();
        assert_eq!(tenants, [large, small].into(), "though all of the large one's have waited for longer");
    })
    .await;
}

async fn is_pushed(db: &TestDatabase) -> bool {
    db.store.system().list_due_mailboxes(1, &[]).await.unwrap()[0].is_pushed
}

async fn set_watches(db: &TestDatabase, columns: &str) {
    db.run(&format!("update push_watches set {columns}")).await;
}

#[tokio::test]
async fn pushed_mailbox_is_polled_less_often() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let id = mailbox_at(&db, Provider::Gmail, acme, "me@acme.test", json!({})).await;
        assert!(!is_pushed(&db).await);
        let mut unit = db.store.tenant(acme).write();
        unit.request_watch(id);
        unit.commit().await.unwrap();
        assert!(!is_pushed(&db).await);

        set_watches(&db, "expires_at = '2999-01-01T00:00:00.000Z'").await;
        assert!(!is_pushed(&db).await, "nothing has come yet");
        set_watches(&db, "last_push_at = '2026-01-01T00:00:00.000Z'").await;
        assert!(is_pushed(&db).await);
        for wrong in
            ["lost_at = '2026-01-01T00:00:00.000Z'", "problem = 'x'", "expires_at = '2026-01-01T00:00:00.000Z'"]
        {
            set_watches(&db, wrong).await;
            assert!(!is_pushed(&db).await, "{wrong}");
            set_watches(&db, "lost_at = null, problem = null, expires_at = '2999-01-01T00:00:00.000Z'").await;
        }
    })
    .await;
}
