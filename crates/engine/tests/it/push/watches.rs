//! Watches that a provider is asked for, from a mailbox's connection to its removal.

use std::time::Duration;

use domain::connector::Watch;
use domain::{Clock, ConnectorError, Provider, Secret, SystemClock};
use engine::sync::push::{PushOutcome, PushReceiver, PushState};
use jiff::SignedDuration;
use serde_json::json;
use store::testing::on_each_database;
use testkit::MailboxOperations;
use testkit::wait_until;

use super::google::{Google, push};
use super::push_app::{ADDRESS, PushApp};

fn refused(error: ConnectorError) -> Option<Result<Watch, ConnectorError>> {
    Some(Err(error))
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_is_renewed_daily_while_the_mailbox_is_active() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Gmail);
        let acme = app.tenant("acme").await;
        app.connect(acme, "s").await;
        assert_eq!(app.status(acme).await.state, PushState::Off);
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["watch s"]);
        let (standing, watch) = (app.status(acme).await, app.watch(acme).await.unwrap());
        assert_eq!((standing.state, standing.reason), (PushState::On, None));
        let wait = watch.next_at.duration_since(SystemClock.now());
        assert!(SignedDuration::from_hours(19) < wait && wait <= SignedDuration::from_hours(24), "{wait}");

        app.tick().await;
        assert_eq!(app.server.asked(), Vec::<String>::new(), "it is not due");
        app.make_due().await;
        app.tick().await;
        assert_eq!(app.server.asked(), ["watch s"]);
        assert!(app.watch(acme).await.unwrap().next_at > SystemClock.now());

        let engine = &app.engine;
        engine.pause_mailbox(&app.mailbox(acme).await).await.unwrap();
        app.make_due().await;
        app.tick().await;
        assert_eq!(app.server.asked(), Vec::<String>::new(), "nobody calls for a mailbox that is paused");
        assert_eq!(app.status(acme).await.state, PushState::Off);
        engine.resume_mailbox(&app.mailbox(acme).await).await.unwrap();
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["watch s"]);
        engine.change_mailbox(&app.mailbox(acme).await, json!({}).into(), Some(Secret::new("t".into()))).await.unwrap();
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["watch t"]);

        // Nobody was there to renew it.
        app.db.run("update push_watches set expires_at = '2026-01-01T00:00:00.000Z'").await;
        assert_eq!(app.status(acme).await.state, PushState::Failing);
        app.make_due().await;
        app.tick().await;
        assert_eq!(app.status(acme).await.state, PushState::On);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_watch_is_requested_again() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Gmail);
        let acme = app.tenant("acme").await;
        app.server.answer_watch(refused(ConnectorError::AppRejected("the topic may not be written to".into())));
        app.connect(acme, "s").await;
        app.run_jobs_until_idle().await;
        let (standing, watch) = (app.status(acme).await, app.watch(acme).await.unwrap());
        assert_eq!((standing.state, watch.failures), (PushState::Failing, 1));
        assert!(standing.reason.unwrap().contains("the topic may not be written to"));
        assert_eq!(app.mailbox(acme).await.state.as_str(), "active", "mail comes all the same");
        let wait = watch.next_at.duration_since(SystemClock.now());
        assert!(wait > SignedDuration::from_secs(30) && wait <= SignedDuration::from_secs(61), "{wait}");

        app.server.answer_watch(None);
        app.make_due().await;
        app.tick().await;
        let standing = app.status(acme).await;
        assert_eq!(standing.state, PushState::Off);
        assert!(standing.reason.unwrap().contains("providers.google.pubsub_topic"));
        app.tick().await;
        assert_eq!(app.status(acme).await.state, PushState::Off);
        // Somebody has said where.
        app.db.store.system().request_disabled_watches().await.unwrap();
        app.tick().await;
        assert_eq!(app.status(acme).await.state, PushState::On);

        app.server.asked();
        app.server.answer_watch(refused(ConnectorError::Unauthorized("no".into())));
        app.make_due().await;
        app.tick().await;
        let standing = app.status(acme).await;
        assert_eq!(standing.state, PushState::On, "what was agreed to goes on until it ends");
        assert!(standing.reason.unwrap().contains("credentials"));
        let looks = "select 1 from finished_jobs where kind = 'sync_mailbox'";
        assert_eq!(app.db.rows(looks).await.len(), 2, "a look finds out whether the mailbox is still ours");

        let failures = app.watch(acme).await.unwrap().failures;
        app.server.answer_watch(refused(ConnectorError::Throttled { retry_after: Some(Duration::from_secs(1800)) }));
        app.make_due().await;
        app.tick().await;
        let watch = app.watch(acme).await.unwrap();
        assert_eq!(watch.failures, failures, "that is no failure");
        assert!(watch.next_at.duration_since(SystemClock.now()) > SignedDuration::from_mins(29));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_tenant_of_an_account_ends_its_watch() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Gmail);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        app.connect(acme, "a").await;
        app.connect(beta, "b").await;
        app.run_jobs_until_idle().await;
        app.server.asked();

        app.disconnect(acme).await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), Vec::<String>::new(), "beta has it");
        assert_eq!((app.watch(acme).await, app.secrets().await), (None, 1));
        assert_eq!(app.status(acme).await.state, PushState::Off);
        assert_eq!(app.status(beta).await.state, PushState::On);

        // Connected again before anybody was told: nothing is stopped, and the old secret is of no use any more.
        app.disconnect(beta).await;
        app.connect(beta, "b2").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["watch b2"]);
        assert_eq!((app.status(beta).await.state, app.secrets().await), (PushState::On, 1));

        app.server.unwatches.lock().unwrap().push_back(ConnectorError::Unavailable("away".into()));
        app.disconnect(beta).await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["unwatch b2", "unwatch b2"]);
        assert_eq!((app.watch(beta).await, app.secrets().await), (None, 0));

        // Whoever cannot be asked is not asked for ever, and the secret goes.
        app.connect(beta, "b3").await;
        app.run_jobs_until_idle().await;
        app.server.asked();
        app.server.unwatches.lock().unwrap().push_back(ConnectorError::Unauthorized("gone".into()));
        app.disconnect(beta).await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.server.asked(), ["unwatch b3"]);
        assert_eq!(app.secrets().await, 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_during_an_unwatch_keeps_pushes() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Gmail);
        let (acme, beta) = (app.tenant("acme").await, app.tenant("beta").await);
        app.connect(acme, "a").await;
        app.run_jobs_until_idle().await;
        app.server.asked();

        let held = app.server.stopping.lock().await;
        let worker = app.start_worker();
        app.disconnect(acme).await;
        wait_until("the watch is ended", async || app.server.was_asked("unwatch a")).await;
        app.connect(beta, "b").await;
        wait_until("a watch is begun", async || app.server.was_asked("watch b")).await;
        drop(held); // and only now the provider stops
        worker.shut_down().await;
        app.tick().await;

        let asked = app.server.asked();
        assert_eq!(asked.last().unwrap(), "watch b", "{asked:?}");
        assert_eq!(asked.iter().filter(|asked| *asked == "watch b").count(), 2, "{asked:?}");
        assert_eq!(app.status(beta).await.state, PushState::On);
        app.finish().await;
    })
    .await;
}

async fn accept_push(pushes: &PushReceiver, message: &str) {
    assert_eq!(pushes.receive(push(message, ADDRESS, 1)).await.unwrap(), [PushOutcome::Accepted]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_pushes_renew_the_watch() {
    on_each_database(|db| async move {
        let app = PushApp::new(db, Provider::Gmail);
        let acme = app.tenant("acme").await;
        app.connect(acme, "s").await;
        app.run_jobs_until_idle().await;
        app.server.asked();
        let pushes = Google::with_key("one").pushes(&app.db.store);

        for n in 0..5 {
            accept_push(&pushes, &format!("p{n}")).await;
            app.find_news(acme, &format!("m{n}")).await;
        }
        // Once in a while the clock is faster.
        for n in 5..8 {
            app.find_news(acme, &format!("m{n}")).await;
            app.find_news(acme, &format!("n{n}")).await;
            accept_push(&pushes, &format!("p{n}")).await;
        }
        app.tick().await;
        assert_eq!((app.push_events(acme).await.len(), app.server.asked().len()), (0, 0), "all is well");

        app.find_news(acme, "x0").await;
        for n in 1..3 {
            app.find_news(acme, &format!("x{n}")).await;
            assert!(app.push_events(acme).await.is_empty(), "{n}");
        }
        for n in 3..9 {
            app.find_news(acme, &format!("x{n}")).await;
            assert_eq!(app.push_events(acme).await, ["mailbox.push_lost"], "it is told once");
        }
        assert_eq!(app.status(acme).await.state, PushState::Failing);
        app.tick().await;
        assert_eq!(app.server.asked(), ["watch s"]);
        let watch = app.watch(acme).await.unwrap();
        assert!(watch.next_at.duration_since(SystemClock.now()) <= SignedDuration::from_hours(1), "sooner than usual");
        assert_eq!(app.status(acme).await.state, PushState::Failing, "until one comes");

        accept_push(&pushes, "again").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.push_events(acme).await, ["mailbox.push_lost", "mailbox.push_restored"]);
        assert_eq!(app.status(acme).await.state, PushState::On);
        accept_push(&pushes, "and-again").await;
        assert_eq!(app.push_events(acme).await.len(), 2);
        app.run_jobs_until_idle().await;
        app.finish().await;
    })
    .await;
}
