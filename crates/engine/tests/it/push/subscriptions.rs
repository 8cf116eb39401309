//! Graph subscriptions: one per account, however many tenants have it, from its first mailbox to its last.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::{Clock, ConnectorError, Provider, SystemClock, TenantId};
use engine::jobs::RenewWatches;
use engine::sync::push::{PushOutcome, PushReceiver, PushState};
use jiff::SignedDuration;
use providers::outlook::GraphPushReader;
use store::failpoint::Effect;
use store::testing::{migrated_sqlite, on_each_database};
use testkit::MailboxOperations;
use testkit::wait_until;

use super::graph::{item, take};
use super::push_app::PushApp;
use testkit::own_process;

impl PushApp {
    fn pushes(&self) -> PushReceiver {
        PushReceiver::new(self.db.store.clone(), self.engine.vault.clone(), Arc::new(GraphPushReader))
    }

    /// What comes of a push of the newest subscription but so many.
    async fn pushed(&self, message: &str, before: usize) -> PushOutcome {
        let (name, password) = {
            let all = self.server.subscriptions.lock().unwrap();
            all[all.len() - 1 - before].clone()
        };
        take(&self.pushes(), &[item(message, &name, &password)]).await[0]
    }

    async fn told_of_subscription(&self, event: &str) {
        let (name, password) = self.server.subscriptions.lock().unwrap().last().unwrap().clone();
        let mut told = item("x", &name, &password);
        told["lifecycleEvent"] = event.into();
        let outcomes = take(&self.pushes(), &[told]).await;
        assert_eq!(outcomes, [PushOutcome::Accepted]);
    }

    /// As if so much time had passed since it was renewed.
    async fn renewed_before(&self, ago: SignedDuration) {
        let then = (SystemClock.now() - ago).strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        let older = (SystemClock.now() - ago * 2).strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        self.db.run(&format!("update push_subscriptions set renewed_at = '{then}'")).await;
        self.db.run(&format!("update push_watches set wanted_at = '{older}'")).await;
    }

    /// The mailbox turns out to be this user's.
    async fn set_user(&self, tenant: TenantId, user: &str) {
        let mailbox = self.mailbox(tenant).await;
        let settings = serde_json::json!({"connection": {"user": user}});
        let mut unit = self.db.store.tenant(tenant).write();
        unit.change_mailbox(mailbox.id, settings.into(), mailbox.secret_ref.as_deref());
        unit.request_watches(&[mailbox.id]);
        unit.commit().await.unwrap();
        self.tick().await;
    }

    /// Works while time passes: whatever was held, put off or to be tried again is due.
    async fn run_overdue_jobs(&self) {
        let passing = async {
            loop {
                self.db.run("update push_subscriptions set held_until = '2026-01-01T00:00:00.000Z'").await;
                self.db
                    .run("update jobs set run_at = '2026-01-01T00:00:00.000Z' where state in ('scheduled', 'retry')")
                    .await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = self.run_jobs_until_idle() => {}
            () = passing => {}
        }
    }

    async fn is_swept(&self, tenant: TenantId) -> bool {
        let mailbox = self.mailbox(tenant).await.id;
        let opened = self.db.store.system().open_mailboxes(&[(tenant, mailbox)]).await.unwrap();
        opened[&(tenant, mailbox)].sweep_since.is_some()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inactive_mailbox_has_no_pushes() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let acme = app.tenant("acme").await;
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.status(acme).await.state, PushState::On);

        app.db.run("update mailboxes set is_active = false").await;

        let standing = app.status(acme).await;
        assert_eq!((standing.state, standing.expires_at.is_some()), (PushState::Off, true));
        assert_eq!(standing.reason.as_deref(), Some("the mailbox is inactive"));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_shared_by_tenants() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["begin a"]);
        assert!(app.is_swept(acme).await, "nobody has told what happened between the first look and this");
        let (standing, watch) = (app.status(acme).await, app.watch(acme).await.unwrap());
        assert_eq!((standing.state, standing.reason), (PushState::On, None));
        let wait = watch.next_at.duration_since(SystemClock.now());
        assert!(SignedDuration::from_hours(19) < wait && wait <= SignedDuration::from_hours(24), "{wait}");

        app.connect(beta, "b").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["renew s1 b"], "it goes on");
        assert_eq!(app.status(beta).await.state, PushState::On);
        app.renewed_before(SignedDuration::from_hours(5)).await;
        app.make_due().await;
        app.tick().await;
        assert_eq!(app.server.asked(), Vec::<String>::new(), "somebody has renewed it");
        app.renewed_before(SignedDuration::from_hours(20)).await;
        app.make_due().await;
        app.tick().await;
        let asked = app.server.asked();
        assert!(asked == ["renew s1 a"] || asked == ["renew s1 b"], "one for both: {asked:?}");
        assert_eq!(app.pushed("1", 0).await, PushOutcome::Accepted);
        assert_eq!(app.db.rows("select 1 from jobs where kind = 'sync_mailbox'").await.len(), 2);
        app.run_jobs_until_idle().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_of_a_former_user_is_replaced() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        for (tenant, secret) in [(acme, "a"), (beta, "b")] {
            app.connect(tenant, secret).await;
            app.run_jobs_until_idle().await;
        }
        app.server.asked();

        // Nobody knew whose it is; from then on it is known.
        app.set_user(acme, "u1").await;
        app.set_user(beta, "u1").await;
        assert_eq!(app.server.asked(), ["renew s1 a", "renew s1 b"], "both have the same account");
        app.set_user(acme, "u2").await;

        assert_eq!(app.server.asked(), ["begin a"]);
        assert_eq!(app.pushed("1", 1).await, PushOutcome::Unknown, "nobody has the one before under this address");
        assert_eq!(app.pushed("2", 0).await, PushOutcome::Accepted);
        app.set_user(beta, "u2").await;
        assert_eq!(app.server.asked(), ["renew s2 b"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unverified_mailbox_does_not_subscribe() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        app.server.asked();
        app.connect(beta, "b").await;
        // It is asked for before anybody looks at the mailbox.
        app.db.run("delete from jobs where kind = 'sync_mailbox'").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.mailbox(beta).await.state.as_str(), "connecting");
        assert_eq!(app.server.asked(), Vec::<String>::new());
        let wait = app.watch(beta).await.unwrap().next_at.duration_since(SystemClock.now());
        assert!(wait <= SignedDuration::from_mins(1), "{wait}");

        app.find_news(beta, "m1").await;
        assert_eq!(app.mailbox(beta).await.state.as_str(), "active");
        assert_eq!(app.server.asked(), ["renew s1 b"], "as soon as it is known whose it is");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_subscriptions_wait() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        let held = app.server.subscribing.lock().await;
        app.connect(acme, "a").await;
        app.connect(beta, "b").await;
        app.db.run("update mailboxes set state = 'active'").await;
        let worker = app.start_worker();
        // One asks, and the other has been put off.
        wait_until("one subscribes and the other waits", async || {
            let is_asked = !app.server.asked.lock().unwrap().is_empty();
            is_asked && app.count("finished_jobs where kind = 'watch_mailbox'").await > 0
        })
        .await;
        drop(held);
        worker.shut_down().await;
        app.make_due().await;
        app.tick().await;

        let asked = app.server.asked();
        assert_eq!(asked.iter().filter(|asked| asked.starts_with("begin")).count(), 1, "{asked:?}");
        for tenant in [acme, beta] {
            assert_eq!(app.status(tenant).await.state, PushState::On);
        }
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vanished_subscription_is_replaced_and_swept() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        app.connect(beta, "b").await;
        app.run_jobs_until_idle().await;
        app.server.asked();
        app.connector.take_calls();
        app.db.run("delete from finished_jobs where state = 'done'").await;
        app.db.run("update push_watches set sweep_since = null").await;

        app.server.is_subscribed.store(false, Ordering::SeqCst);
        app.renewed_before(SignedDuration::from_hours(20)).await;
        app.make_due().await;
        app.tick().await;
        let asked = app.server.asked();
        assert!(asked == ["renew s1 a", "begin a"] || asked == ["renew s1 b", "begin b"], "{asked:?}");
        assert_eq!(app.db.rows("select 1 from finished_jobs where kind = 'sync_mailbox'").await.len(), 2);
        assert!(app.is_swept(acme).await && app.is_swept(beta).await);
        assert_eq!(app.sweeps(), 2, "listings are told");
        assert_eq!(app.pushed("1", 0).await, PushOutcome::Accepted);
        assert_eq!(app.pushed("2", 1).await, PushOutcome::Unknown, "the old one is nobody's");
        app.run_jobs_until_idle().await;

        // The provider says so itself.
        app.server.asked();
        app.server.is_subscribed.store(false, Ordering::SeqCst);
        app.told_of_subscription("subscriptionRemoved").await;
        app.run_jobs_until_idle().await;
        let asked = app.server.asked();
        assert_eq!(asked.iter().filter(|asked| asked.starts_with("begin")).count(), 1, "{asked:?}");
        assert_eq!(app.pushed("3", 0).await, PushOutcome::Accepted);
        app.run_jobs_until_idle().await;
        app.server.asked();
        app.told_of_subscription("reauthorizationRequired").await;
        app.run_jobs_until_idle().await;
        let asked = app.server.asked();
        assert!(asked.contains(&"renew s3 a".to_owned()) || asked.contains(&"renew s3 b".to_owned()), "{asked:?}");
        assert!(!asked.iter().any(|asked| asked.starts_with("begin")), "{asked:?}");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_answer_is_recognised_by_its_client_state() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let acme = app.tenant("acme").await;
        app.server.loses_answers.store(true, Ordering::SeqCst);
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.status(acme).await.state, PushState::Failing);
        assert_eq!(app.pushed("1", 0).await, PushOutcome::Accepted);
        app.run_jobs_until_idle().await;
        app.db.run("update push_watches set sweep_since = null").await;

        app.make_due().await;
        app.tick().await;
        assert_eq!(app.server.asked(), ["begin a", "renew s1 a"]);
        assert_eq!(app.status(acme).await.state, PushState::On);
        assert!(app.is_swept(acme).await, "nobody has looked since it began");
        assert_eq!(app.pushed("2", 0).await, PushOutcome::Accepted);
        app.run_jobs_until_idle().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_subscription_is_not_recognised() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let acme = app.tenant("acme").await;
        app.server.loses_answers.store(true, Ordering::SeqCst);
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;

        app.make_due().await;
        app.tick().await;
        assert_eq!(app.server.asked(), ["begin a", "begin a"]);
        assert_eq!(app.status(acme).await.state, PushState::On);
        assert!(app.is_swept(acme).await, "something may have been told between the two");
        assert_eq!((app.pushed("2", 1).await, app.pushed("3", 0).await), (PushOutcome::Unknown, PushOutcome::Accepted));
        app.run_jobs_until_idle().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_subscription_leaves_the_mailbox_active() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let acme = app.tenant("acme").await;
        app.server.answer_watch(Some(Err(ConnectorError::AppRejected("it cannot reach us".into()))));
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        let (standing, watch) = (app.status(acme).await, app.watch(acme).await.unwrap());
        assert_eq!((standing.state, watch.failures), (PushState::Failing, 1));
        assert!(standing.reason.unwrap().contains("it cannot reach us"));
        assert_eq!(app.mailbox(acme).await.state.as_str(), "active", "mail comes all the same");

        app.make_due().await;
        app.tick().await;
        assert_eq!(app.status(acme).await.state, PushState::On);
        app.renewed_before(SignedDuration::from_hours(20)).await;
        app.server.answer_watch(Some(Err(ConnectorError::Unavailable("away".into()))));
        app.make_due().await;
        app.tick().await;
        let standing = app.status(acme).await;
        assert_eq!(standing.state, PushState::On, "what was agreed to goes on until it ends");
        assert!(standing.reason.unwrap().contains("away"));
        assert_eq!(app.pushed("1", 0).await, PushOutcome::Accepted);
        app.run_jobs_until_idle().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_subscription_is_replaced() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let acme = app.tenant("acme").await;
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        app.server.asked();
        for n in 0..4 {
            app.find_news(acme, &format!("m{n}")).await;
        }
        assert_eq!(app.push_events(acme).await, ["mailbox.push_lost"]);
        app.tick().await;
        assert_eq!(app.server.asked(), ["begin a"], "to renew it would not help");
        assert_eq!(app.status(acme).await.state, PushState::Failing, "until one comes");
        // Neither does the one in its place, while mail comes.
        let then = (SystemClock.now() - SignedDuration::from_hours(3)).strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        app.renewed_before(SignedDuration::from_hours(2)).await;
        app.db.run(&format!("update push_watches set lost_at = '{then}', news_at = '{then}'")).await;
        app.make_due().await;
        app.tick().await;
        assert_eq!(app.server.asked(), Vec::<String>::new(), "nothing has come that it could have told of");
        app.find_news(acme, "m5").await;
        app.make_due().await;
        app.tick().await;
        assert_eq!(app.server.asked(), ["begin a"]);

        assert_eq!(app.pushed("1", 0).await, PushOutcome::Accepted);
        app.run_jobs_until_idle().await;
        assert_eq!(app.push_events(acme).await, ["mailbox.push_lost", "mailbox.push_restored"]);
        assert_eq!(app.status(acme).await.state, PushState::On);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_tenant_of_an_account_unsubscribes() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        app.connect(beta, "b").await;
        app.run_jobs_until_idle().await;
        app.server.asked();

        app.disconnect(acme).await;
        app.run_jobs_until_idle().await;
        let asked = app.server.asked();
        assert!(!asked.iter().any(|asked| asked.starts_with("unwatch")), "beta has it: {asked:?}");
        assert_eq!(app.count("push_subscriptions").await, 1);
        app.server.unwatches.lock().unwrap().push_back(ConnectorError::Unavailable("away".into()));
        app.disconnect(beta).await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["unwatch s1 b", "unwatch s1 b"]);
        assert_eq!((app.count("push_subscriptions").await, app.secrets().await), (0, 0));

        // It has ended by itself, which is as good.
        app.connect(acme, "a2").await;
        app.run_jobs_until_idle().await;
        app.server.unwatches.lock().unwrap().push_back(ConnectorError::Gone);
        app.disconnect(acme).await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["begin a2", "unwatch s2 a2"]);
        assert_eq!((app.count("push_subscriptions").await, app.secrets().await), (0, 0));

        // Whoever cannot be asked is not asked for ever; what is left of it goes with the old pushes.
        app.connect(beta, "b2").await;
        app.run_jobs_until_idle().await;
        app.server.unwatches.lock().unwrap().push_back(ConnectorError::Unauthorized("gone".into()));
        app.disconnect(beta).await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.count("push_subscriptions").await, 1);
        let system = app.db.store.system();
        let in_a_year = system.now().await.unwrap() + SignedDuration::from_hours(24 * 365);
        assert!(!system.prune_subscriptions(system.now().await.unwrap(), 10).await.unwrap());
        assert_eq!(app.count("push_subscriptions").await, 1, "it goes on for a week");
        system.prune_subscriptions(in_a_year, 10).await.unwrap();
        assert_eq!(app.count("push_subscriptions").await, 0);
        assert_eq!(app.pushed("1", 0).await, PushOutcome::Unknown);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn push_gap_leads_to_a_sweep() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let acme = app.tenant("acme").await;
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        app.db.run("update push_watches set sweep_since = null").await;

        app.engine.pause_mailbox(&app.mailbox(acme).await).await.unwrap();
        assert_eq!(app.pushed("1", 0).await, PushOutcome::Unknown, "nobody is told of it");
        app.engine.resume_mailbox(&app.mailbox(acme).await).await.unwrap();
        assert!(app.is_swept(acme).await);
        app.run_jobs_until_idle().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_master_key_replaces_the_subscription() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Outlook);
        let acme = app.tenant("acme").await;
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        app.server.asked();
        assert_eq!(app.pushed("1", 0).await, PushOutcome::Accepted);
        app.run_jobs_until_idle().await;

        app.engine.vault.rotate(None).await.unwrap();
        assert_eq!(app.pushed("2", 0).await, PushOutcome::Forbidden, "it was signed by the other key");
        app.tick().await;
        assert_eq!(app.server.asked(), ["begin a"]);
        assert_eq!(app.pushed("3", 0).await, PushOutcome::Accepted);
        assert_eq!(app.status(acme).await.state, PushState::On);
        app.run_jobs_until_idle().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_leaves_a_known_subscription_or_none() {
    if own_process::is_child() {
        return outlive_a_panic().await;
    }
    for effect in Effect::SUBSCRIPTIONS {
        for moment in ["before", "after"] {
            let failpoint = format!("{moment}:{}=panic", effect.name());
            let folder = tempfile::tempdir().unwrap();
            let trace = folder.path().join("trace");
            own_process::run(
                "push::subscriptions::crash_leaves_a_known_subscription_or_none",
                &format!("{failpoint} trace={}", trace.display()),
            );
            let passed = std::fs::read_to_string(trace).unwrap();
            assert!(passed.contains(&format!("{moment}:{}", effect.name())), "{failpoint} was never reached");
        }
    }
}

/// Watches and ends a subscription, with a panic on the way.
async fn outlive_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let app = PushApp::new(db, Provider::Outlook);
    let acme = app.tenant("acme").await;
    // The first answer is a refusal, the second is lost.
    app.server.watches.lock().unwrap().push_back(Some(Err(ConnectorError::Unavailable("away".into()))));
    app.server.loses_answers.store(true, Ordering::SeqCst);
    app.connect(acme, "a").await;
    app.run_overdue_jobs().await;
    for _ in 0..4 {
        app.make_due().await;
        app.enqueue(TenantId::SYSTEM, &RenewWatches {}).await;
        app.run_overdue_jobs().await;
    }
    assert_eq!(app.status(acme).await.state, PushState::On);
    assert_eq!(app.pushed("1", 0).await, PushOutcome::Accepted, "the one that is there is known");
    app.run_jobs_until_idle().await;

    app.disconnect(acme).await;
    app.run_overdue_jobs().await;
    let asked = app.server.asked();
    assert!(asked.last().unwrap().starts_with("unwatch"), "{asked:?}");
    let left: Vec<Option<String>> =
        app.db.rows("select name from push_subscriptions").await.iter().map(|row| row.get(0).unwrap()).collect();
    assert_eq!(left, [], "{asked:?}");
    app.finish().await;
}
