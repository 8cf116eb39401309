//! Subscriptions: one for an account, whoever of the tenants has it, from its first mailbox to its last.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::{Clock, ConnectorError, Provider, SystemClock, TenantId};
use engine::jobs::RenewWatches;
use engine::push::{GraphPushes, Outcome, PushState};
use jiff::SignedDuration;
use store::failpoint::Effect;
use store::testing::{TestDatabase, migrated_sqlite, on_each_database};

use super::graph::{item, take};
use super::scene::{DEADLINE, Scene};
use crate::alone::alone;

fn scene(db: &TestDatabase) -> Scene<'_> {
    Scene::new(db, Provider::Outlook)
}

impl Scene<'_> {
    fn pushes(&self) -> GraphPushes {
        GraphPushes::new(self.db.store.clone(), self.syncer.engine.vault.clone())
    }

    /// What comes of a push of the newest subscription but so many.
    async fn pushed(&self, message: &str, before: usize) -> Outcome {
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
        assert_eq!(outcomes, [Outcome::Accepted]);
    }

    /// As if so much time had passed since it was renewed.
    async fn renewed_before(&self, ago: SignedDuration) {
        let then = (SystemClock.now() - ago).strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        let older = (SystemClock.now() - ago * 2).strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        self.db.run(&format!("update push_subscriptions set renewed_at = '{then}'")).await;
        self.db.run(&format!("update push_watches set wanted_at = '{older}'")).await;
    }

    async fn is_swept(&self, tenant: TenantId) -> bool {
        let mailbox = self.mailbox(tenant).await.id;
        let opened = self.db.store.system().open_mailboxes(&[(tenant, mailbox)]).await.unwrap();
        opened[&(tenant, mailbox)].sweep_since.is_some()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_mailbox_that_is_switched_off_pushes_are_off_whatever_was_agreed_upon() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let acme = scene.tenant("acme").await;
        scene.connect(acme, "a").await;
        scene.work().await;
        assert_eq!(scene.standing(acme).await.state, PushState::On);

        db.run("update mailboxes set is_active = false").await;

        let standing = scene.standing(acme).await;
        assert_eq!((standing.state, standing.expires_at.is_some()), (PushState::Off, true));
        assert_eq!(standing.reason.as_deref(), Some("the mailbox is switched off"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_begun_once_and_renewed_by_whoever_comes_first() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let (acme, beta) = (scene.tenant("acme").await, scene.tenant("beta").await);
        scene.connect(acme, "a").await;
        scene.work().await;
        assert_eq!(scene.server.asked(), ["begin a"]);
        assert!(scene.is_swept(acme).await, "nobody has told what happened between the first look and this");
        let (standing, watch) = (scene.standing(acme).await, scene.watch(acme).await.unwrap());
        assert_eq!((standing.state, standing.reason), (PushState::On, None));
        let wait = watch.next_at.duration_since(SystemClock.now());
        assert!(SignedDuration::from_hours(19) < wait && wait <= SignedDuration::from_hours(24), "{wait}");

        scene.connect(beta, "b").await;
        scene.work().await;
        assert_eq!(scene.server.asked(), ["renew s1 b"], "it goes on");
        assert_eq!(scene.standing(beta).await.state, PushState::On);
        scene.renewed_before(SignedDuration::from_hours(5)).await;
        scene.make_due().await;
        scene.tick().await;
        assert_eq!(scene.server.asked(), Vec::<String>::new(), "somebody has renewed it");
        scene.renewed_before(SignedDuration::from_hours(20)).await;
        scene.make_due().await;
        scene.tick().await;
        let asked = scene.server.asked();
        assert!(asked == ["renew s1 a"] || asked == ["renew s1 b"], "one for both: {asked:?}");
        assert_eq!(scene.pushed("1", 0).await, Outcome::Accepted);
        assert_eq!(db.rows("select 1 from jobs where kind = 'sync_mailbox'").await.len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_whoever_had_the_address_before_is_of_no_use_to_who_has_it_now() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let (acme, beta) = (scene.tenant("acme").await, scene.tenant("beta").await);
        let is_of = async |tenant: TenantId, user: &str| {
            let mailbox = scene.mailbox(tenant).await;
            let settings = serde_json::json!({"connection": {"user": user}});
            let mut unit = db.store.tenant(tenant).write();
            unit.change_mailbox(mailbox.id, settings, mailbox.secret_ref.as_deref());
            unit.want_watches(&[mailbox.id]);
            unit.commit().await.unwrap();
            scene.tick().await;
        };
        for (tenant, secret) in [(acme, "a"), (beta, "b")] {
            scene.connect(tenant, secret).await;
            scene.work().await;
        }
        scene.server.asked();

        // Nobody knew whose it is; from then on it is known.
        is_of(acme, "u1").await;
        is_of(beta, "u1").await;
        assert_eq!(scene.server.asked(), ["renew s1 a", "renew s1 b"], "both have the same account");
        is_of(acme, "u2").await;

        assert_eq!(scene.server.asked(), ["begin a"]);
        assert_eq!(scene.pushed("1", 1).await, Outcome::Unknown, "nobody has the one before under this address");
        assert_eq!(scene.pushed("2", 0).await, Outcome::Accepted);
        is_of(beta, "u2").await;
        assert_eq!(scene.server.asked(), ["renew s2 b"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_not_shown_yet_whose_mailbox_it_opens_asks_for_nothing() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let (acme, beta) = (scene.tenant("acme").await, scene.tenant("beta").await);
        scene.connect(acme, "a").await;
        scene.work().await;
        scene.server.asked();
        scene.connect(beta, "b").await;
        // It is asked for before anybody looks at the mailbox.
        db.run("delete from jobs where kind = 'sync_mailbox'").await;
        scene.work().await;
        assert_eq!(scene.mailbox(beta).await.state.as_str(), "connecting");
        assert_eq!(scene.server.asked(), Vec::<String>::new());
        let wait = scene.watch(beta).await.unwrap().next_at.duration_since(SystemClock.now());
        assert!(wait <= SignedDuration::from_mins(1), "{wait}");

        scene.find_news(beta, "m1").await;
        assert_eq!(scene.mailbox(beta).await.state.as_str(), "active");
        assert_eq!(scene.server.asked(), ["renew s1 b"], "as soon as it is known whose it is");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_asks_the_others_wait() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let (acme, beta) = (scene.tenant("acme").await, scene.tenant("beta").await);
        let held = scene.server.subscribing.lock().await;
        scene.connect(acme, "a").await;
        scene.connect(beta, "b").await;
        db.run("update mailboxes set state = 'active'").await;
        let worker = scene.start_worker();
        let waiting = async {
            // One asks, and the other has been put off.
            let put_off = "select 1 from finished_jobs where kind = 'watch_mailbox'";
            while scene.server.asked.lock().unwrap().is_empty() || db.rows(put_off).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.expect("nobody asks, or both do");
        drop(held);
        worker.shut_down().await;
        scene.make_due().await;
        scene.tick().await;

        let asked = scene.server.asked();
        assert_eq!(asked.iter().filter(|asked| asked.starts_with("begin")).count(), 1, "{asked:?}");
        for tenant in [acme, beta] {
            assert_eq!(scene.standing(tenant).await.state, PushState::On);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_gone_is_begun_anew_and_every_mailbox_is_looked_at() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let (acme, beta) = (scene.tenant("acme").await, scene.tenant("beta").await);
        scene.connect(acme, "a").await;
        scene.work().await;
        scene.connect(beta, "b").await;
        scene.work().await;
        scene.server.asked();
        scene.server.sweeps.lock().unwrap().clear();
        db.run("delete from finished_jobs").await;
        db.run("update push_watches set sweep_since = null").await;

        scene.server.is_subscribed.store(false, Ordering::SeqCst);
        scene.renewed_before(SignedDuration::from_hours(20)).await;
        scene.make_due().await;
        scene.tick().await;
        let asked = scene.server.asked();
        assert!(asked == ["renew s1 a", "begin a"] || asked == ["renew s1 b", "begin b"], "{asked:?}");
        assert_eq!(db.rows("select 1 from finished_jobs where kind = 'sync_mailbox'").await.len(), 2);
        assert!(scene.is_swept(acme).await && scene.is_swept(beta).await);
        assert_eq!(scene.server.sweeps.lock().unwrap().iter().flatten().count(), 2, "listings are told");
        assert_eq!(scene.pushed("1", 0).await, Outcome::Accepted);
        assert_eq!(scene.pushed("2", 1).await, Outcome::Unknown, "the old one is nobody's");
        scene.work().await;

        // The provider says so itself.
        scene.server.asked();
        scene.server.is_subscribed.store(false, Ordering::SeqCst);
        scene.told_of_subscription("subscriptionRemoved").await;
        scene.work().await;
        let asked = scene.server.asked();
        assert_eq!(asked.iter().filter(|asked| asked.starts_with("begin")).count(), 1, "{asked:?}");
        assert_eq!(scene.pushed("3", 0).await, Outcome::Accepted);
        scene.work().await;
        scene.server.asked();
        scene.told_of_subscription("reauthorizationRequired").await;
        scene.work().await;
        let asked = scene.server.asked();
        assert!(asked.contains(&"renew s3 a".to_owned()) || asked.contains(&"renew s3 b".to_owned()), "{asked:?}");
        assert!(!asked.iter().any(|asked| asked.starts_with("begin")), "{asked:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_which_nobody_heard_is_known_by_what_it_says_from_then_on() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let acme = scene.tenant("acme").await;
        scene.server.loses_answers.store(true, Ordering::SeqCst);
        scene.connect(acme, "a").await;
        scene.work().await;
        assert_eq!(scene.standing(acme).await.state, PushState::Failing);
        assert_eq!(scene.pushed("1", 0).await, Outcome::Accepted);
        scene.work().await;
        db.run("update push_watches set sweep_since = null").await;

        scene.make_due().await;
        scene.tick().await;
        assert_eq!(scene.server.asked(), ["begin a", "renew s1 a"]);
        assert_eq!(scene.standing(acme).await.state, PushState::On);
        assert!(scene.is_swept(acme).await, "nobody has looked since it began");
        assert_eq!(scene.pushed("2", 0).await, Outcome::Accepted);
        scene.work().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_which_nobody_heard_is_nothing_once_another_is_in_its_place() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let acme = scene.tenant("acme").await;
        scene.server.loses_answers.store(true, Ordering::SeqCst);
        scene.connect(acme, "a").await;
        scene.work().await;

        scene.make_due().await;
        scene.tick().await;
        assert_eq!(scene.server.asked(), ["begin a", "begin a"]);
        assert_eq!(scene.standing(acme).await.state, PushState::On);
        assert!(scene.is_swept(acme).await, "something may have been told between the two");
        assert_eq!((scene.pushed("2", 1).await, scene.pushed("3", 0).await), (Outcome::Unknown, Outcome::Accepted));
        scene.work().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_had_is_told_and_the_mailbox_goes_on_without() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let acme = scene.tenant("acme").await;
        let refuse = |error| scene.server.watches.lock().unwrap().push_back(Some(Err(error)));
        refuse(ConnectorError::Operator("it cannot reach us".into()));
        scene.connect(acme, "a").await;
        scene.work().await;
        let (standing, watch) = (scene.standing(acme).await, scene.watch(acme).await.unwrap());
        assert_eq!((standing.state, watch.failures), (PushState::Failing, 1));
        assert!(standing.reason.unwrap().contains("it cannot reach us"));
        assert_eq!(scene.mailbox(acme).await.state.as_str(), "active", "mail comes all the same");

        scene.make_due().await;
        scene.tick().await;
        assert_eq!(scene.standing(acme).await.state, PushState::On);
        scene.renewed_before(SignedDuration::from_hours(20)).await;
        refuse(ConnectorError::Unavailable("away".into()));
        scene.make_due().await;
        scene.tick().await;
        let standing = scene.standing(acme).await;
        assert_eq!(standing.state, PushState::On, "what was agreed to goes on until it ends");
        assert!(standing.reason.unwrap().contains("away"));
        assert_eq!(scene.pushed("1", 0).await, Outcome::Accepted);
        scene.work().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_tells_nothing_is_begun_anew() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let acme = scene.tenant("acme").await;
        scene.connect(acme, "a").await;
        scene.work().await;
        scene.server.asked();
        for n in 0..4 {
            scene.find_news(acme, &format!("m{n}")).await;
        }
        assert_eq!(scene.told(acme).await, ["mailbox.push_lost"]);
        scene.tick().await;
        assert_eq!(scene.server.asked(), ["begin a"], "to renew it would not help");
        assert_eq!(scene.standing(acme).await.state, PushState::Failing, "until one comes");
        // Neither does the one in its place, while mail comes.
        let ago = |hours| (SystemClock.now() - SignedDuration::from_hours(hours)).strftime("%Y-%m-%dT%H:%M:%S.000Z");
        scene.renewed_before(SignedDuration::from_hours(2)).await;
        db.run(&format!("update push_watches set lost_at = '{}', news_at = '{}'", ago(3), ago(3))).await;
        scene.make_due().await;
        scene.tick().await;
        assert_eq!(scene.server.asked(), Vec::<String>::new(), "nothing has come that it could have told of");
        scene.find_news(acme, "m5").await;
        scene.make_due().await;
        scene.tick().await;
        assert_eq!(scene.server.asked(), ["begin a"]);

        assert_eq!(scene.pushed("1", 0).await, Outcome::Accepted);
        scene.work().await;
        assert_eq!(scene.told(acme).await, ["mailbox.push_lost", "mailbox.push_restored"]);
        assert_eq!(scene.standing(acme).await.state, PushState::On);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_the_last_tenant_that_has_the_account() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let (acme, beta) = (scene.tenant("acme").await, scene.tenant("beta").await);
        let there = async || db.rows("select 1 from push_subscriptions").await.len();
        scene.connect(acme, "a").await;
        scene.work().await;
        scene.connect(beta, "b").await;
        scene.work().await;
        scene.server.asked();

        scene.disconnect(acme).await;
        scene.work().await;
        let asked = scene.server.asked();
        assert!(!asked.iter().any(|asked| asked.starts_with("unwatch")), "beta has it: {asked:?}");
        assert_eq!(there().await, 1);
        scene.server.unwatches.lock().unwrap().push_back(ConnectorError::Unavailable("away".into()));
        scene.disconnect(beta).await;
        scene.work().await;
        assert_eq!(scene.server.asked(), ["unwatch s1 b", "unwatch s1 b"]);
        assert_eq!((there().await, scene.secrets().await), (0, 0));

        // It has ended by itself, which is as good.
        scene.connect(acme, "a2").await;
        scene.work().await;
        scene.server.unwatches.lock().unwrap().push_back(ConnectorError::Gone);
        scene.disconnect(acme).await;
        scene.work().await;
        assert_eq!(scene.server.asked(), ["begin a2", "unwatch s2 a2"]);
        assert_eq!((there().await, scene.secrets().await), (0, 0));

        // Whoever cannot be asked is not asked for ever; what is left of it goes with the old pushes.
        scene.connect(beta, "b2").await;
        scene.work().await;
        scene.server.unwatches.lock().unwrap().push_back(ConnectorError::Unauthorized("gone".into()));
        scene.disconnect(beta).await;
        scene.work().await;
        assert_eq!(there().await, 1);
        let system = db.store.system();
        let in_a_year = system.now().await.unwrap() + SignedDuration::from_hours(24 * 365);
        assert!(!system.prune_subscriptions(system.now().await.unwrap(), 10).await.unwrap());
        assert_eq!(there().await, 1, "it goes on for a week");
        system.prune_subscriptions(in_a_year, 10).await.unwrap();
        assert_eq!(there().await, 0);
        assert_eq!(scene.pushed("1", 0).await, Outcome::Unknown);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_heard_nothing_for_a_while_looks_at_every_folder() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let acme = scene.tenant("acme").await;
        scene.connect(acme, "a").await;
        scene.work().await;
        db.run("update push_watches set sweep_since = null").await;

        scene.syncer.engine.pause_mailbox(&scene.mailbox(acme).await).await.unwrap();
        assert_eq!(scene.pushed("1", 0).await, Outcome::Unknown, "nobody is told of it");
        scene.syncer.engine.resume_mailbox(&scene.mailbox(acme).await, None).await.unwrap();
        assert!(scene.is_swept(acme).await);
        scene.work().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_another_master_key_it_is_begun_anew() {
    on_each_database(|db| async move {
        let scene = scene(&db);
        let acme = scene.tenant("acme").await;
        scene.connect(acme, "a").await;
        scene.work().await;
        scene.server.asked();
        assert_eq!(scene.pushed("1", 0).await, Outcome::Accepted);
        scene.work().await;

        scene.syncer.engine.vault.rotate(None).await.unwrap();
        assert_eq!(scene.pushed("2", 0).await, Outcome::Forbidden, "it was signed by the other key");
        scene.tick().await;
        assert_eq!(scene.server.asked(), ["begin a"]);
        assert_eq!(scene.pushed("3", 0).await, Outcome::Accepted);
        assert_eq!(scene.standing(acme).await.state, PushState::On);
        scene.work().await;
    })
    .await;
}

#[test]
fn who_dies_on_the_way_to_a_subscription_or_away_from_it_leaves_one_that_is_known_or_none() {
    for effect in Effect::SUBSCRIPTIONS {
        for moment in ["before", "after"] {
            let failpoint = format!("{moment}:{}=panic", effect.name());
            let folder = tempfile::tempdir().unwrap();
            let trace = folder.path().join("trace");
            alone("push::subscribed::outlives_a_panic", &format!("{failpoint} trace={}", trace.display()));
            let passed = std::fs::read_to_string(trace).unwrap();
            assert!(passed.contains(&format!("{moment}:{}", effect.name())), "{failpoint} was never reached");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with a failpoint that panics"]
async fn outlives_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let scene = scene(&db);
    let acme = scene.tenant("acme").await;
    // Whatever was held, put off or to be tried again: its time has come.
    let time_passes = async || {
        db.run("update push_subscriptions set held_until = '2026-01-01T00:00:00.000Z'").await;
        db.run("update jobs set run_at = '2026-01-01T00:00:00.000Z' where state in ('scheduled', 'retry')").await;
    };
    let go_on = async || {
        let passing = async {
            loop {
                time_passes().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            () = scene.work() => {}
            () = passing => {}
        }
    };
    // The first answer is a refusal, the second is lost.
    scene.server.watches.lock().unwrap().push_back(Some(Err(ConnectorError::Unavailable("away".into()))));
    scene.server.loses_answers.store(true, Ordering::SeqCst);
    scene.connect(acme, "a").await;
    go_on().await;
    for _ in 0..4 {
        scene.make_due().await;
        scene.enqueue(TenantId::SYSTEM, &RenewWatches {}).await;
        go_on().await;
    }
    assert_eq!(scene.standing(acme).await.state, PushState::On);
    assert_eq!(scene.pushed("1", 0).await, Outcome::Accepted, "the one that is there is known");
    scene.work().await;

    scene.disconnect(acme).await;
    go_on().await;
    let asked = scene.server.asked();
    assert!(asked.last().unwrap().starts_with("unwatch"), "{asked:?}");
    let left: Vec<Option<String>> =
        db.rows("select name from push_subscriptions").await.iter().map(|row| row.get(0).unwrap()).collect();
    assert_eq!(left, [], "{asked:?}");
}
