//! Calls to a provider: when they are made, when not, and how long they may take. The clock stands still but for the tests.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::connector::Answer;
use domain::{Clock, ConnectorError, Lane, MailboxId, MailboxState, Provider, SystemClock, TenantId};
use engine::calls::budget::Budget;
use engine::calls::{Allowance, CallSettings, Calls, Pace};
use jobs::Dice;
use metrics_exporter_prometheus::PrometheusBuilder;
use store::sql::mailboxes::Mailbox;
use tokio::time::{Instant, advance};

/// No jitter.
#[derive(Debug)]
struct Zeros;

impl Dice for Zeros {
    fn bits(&self) -> u64 {
        0
    }
}

struct Scene {
    calls: Calls,
    made: AtomicU32,
}

impl Scene {
    fn new(pace: Pace) -> Self {
        let settings = CallSettings { pace, ..CallSettings::default() };
        Self { calls: Calls::new(settings, Arc::new(Zeros), None), made: AtomicU32::new(0) }
    }

    async fn call(&self, mailbox: &Mailbox, outcome: Result<(), ConnectorError>) -> Result<(), ConnectorError> {
        let call: Answer<'_, ()> = Box::pin(async {
            self.made.fetch_add(1, Ordering::Relaxed);
            outcome
        });
        self.calls.make(mailbox, call).await
    }

    fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }
}

pub fn mailbox() -> Mailbox {
    mailbox_of(TenantId::new(&SystemClock))
}

fn mailbox_of(tenant_id: TenantId) -> Mailbox {
    let now = SystemClock.now();
    Mailbox {
        id: MailboxId::new(&SystemClock),
        tenant_id,
        provider: Provider::Scripted,
        address: "me@acme.test".into(),
        state: MailboxState::Active,
        state_reason: None,
        state_since: now,
        settings: serde_json::json!({}),
        secret_ref: None,
        is_active: true,
        created_at: now,
        updated_at: now,
        version: 1,
    }
}

fn unavailable() -> Result<(), ConnectorError> {
    Err(ConnectorError::Unavailable("down".into()))
}

fn not_yet(seconds: f64) -> Result<(), ConnectorError> {
    Err(ConnectorError::NotYet(Duration::from_secs_f64(seconds)))
}

fn wait(seconds: f64) -> Result<(), ConnectorError> {
    Err(ConnectorError::Throttled { retry_after: Some(Duration::from_secs_f64(seconds)) })
}

async fn pass(seconds: u64) {
    advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_work_is_asked_every_thirty_seconds_and_only_for_that_tenant() {
    let scene = Scene::new(Pace::default());
    let (ours, others) = (mailbox(), mailbox());
    let mates = mailbox_of(ours.tenant_id);
    for _ in 0..10 {
        assert_eq!(scene.call(&ours, unavailable()).await, unavailable());
    }

    assert_eq!(scene.call(&ours, Ok(())).await, not_yet(30.0));
    assert_eq!(scene.call(&mates, Ok(())).await, not_yet(30.0));
    assert_eq!(scene.made(), 10);
    assert_eq!(scene.call(&others, Ok(())).await, Ok(()));

    for probe in 1..=3 {
        pass(30).await;
        assert_eq!(scene.call(&ours, Ok(())).await, Ok(()), "probe {probe}");
        if probe < 3 {
            assert_eq!(scene.call(&mates, Ok(())).await, not_yet(30.0));
        }
    }
    assert_eq!(scene.call(&mates, Ok(())).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn mail_and_the_directory_of_a_tenant_fail_apart_from_each_other() {
    let ours = mailbox();
    let ask = async |scene: &Scene, is_mail: bool, outcome: Result<(), ConnectorError>| match is_mail {
        true => scene.call(&ours, outcome).await,
        false => scene.calls.ask_directory(&ours, Box::pin(async { outcome })).await,
    };
    for fails in [true, false] {
        let scene = Scene::new(Pace::default());
        for _ in 0..10 {
            assert_eq!(ask(&scene, fails, unavailable()).await, unavailable());
        }
        assert_eq!(ask(&scene, fails, Ok(())).await, not_yet(30.0));
        assert_eq!(ask(&scene, !fails, Ok(())).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_answers_and_being_told_to_wait_is_neither() {
    let scene = Scene::new(Pace::default());
    let ours = mailbox();
    let answers = [
        ConnectorError::Unauthorized("no".into()),
        ConnectorError::Gone,
        ConnectorError::CursorExpired,
        ConnectorError::Protocol("odd".into()),
    ];
    for _ in 0..10 {
        for answer in &answers {
            assert_eq!(scene.call(&ours, Err(answer.clone())).await, Err(answer.clone()));
        }
        let later = ConnectorError::Throttled { retry_after: None };
        assert_eq!(scene.call(&ours, Err(later.clone())).await, Err(later));
    }
    // 40 answers and 10 that say nothing: the 40th failure makes half.
    for _ in 0..40 {
        assert_eq!(scene.call(&ours, unavailable()).await, unavailable());
    }

    assert_eq!(scene.call(&ours, Ok(())).await, not_yet(30.0));
}

#[tokio::test(start_paused = true)]
async fn a_mailbox_is_left_alone_for_exactly_as_long_as_the_provider_asks() {
    let scene = Scene::new(Pace::default());
    let ours = mailbox();
    let mates = mailbox_of(ours.tenant_id);
    assert_eq!(scene.call(&ours, wait(17.0)).await, wait(17.0));

    pass(16).await;
    assert_eq!(scene.call(&ours, Ok(())).await, wait(1.0));
    assert_eq!(scene.made(), 1);
    assert_eq!(scene.call(&mates, Ok(())).await, Ok(()));
    pass(1).await;
    assert_eq!(scene.call(&ours, Ok(())).await, Ok(()));

    // A number that nobody means.
    let never = Err(ConnectorError::Throttled { retry_after: Some(Duration::MAX) });
    assert_eq!(scene.call(&ours, never.clone()).await, never);
    assert!(scene.call(&ours, Ok(())).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_is_given_up_and_counts_as_a_failure() {
    let scene = Scene::new(Pace::default());
    let ours = mailbox();
    let begun = Instant::now();
    let all = (0..10).map(|_| scene.calls.make::<()>(&ours, Box::pin(pending())));
    for outcome in futures_util::future::join_all(all).await {
        assert_eq!(outcome, Err(ConnectorError::Unavailable("no answer within 600 s".into())));
    }

    assert_eq!(begun.elapsed().as_secs(), 600);
    assert_eq!(scene.call(&ours, Ok(())).await, not_yet(30.0));
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_their_turn_and_those_that_would_wait_long_come_back() {
    let scene = Scene::new(Pace::calls_per_second(2.0));
    let ours = mailbox();
    let begun = Instant::now();
    let outcomes = futures_util::future::join_all((0..13).map(|_| scene.call(&ours, Ok(())))).await;

    // Two at once, ten in the five seconds after.
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 12);
    assert_eq!(outcomes[12], not_yet(5.5));
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn every_mailbox_has_its_own_budget_and_all_share_that_of_the_app() {
    let per_second = |n| Allowance { calls: Some(Budget::per_second(n)), bytes: None, units: None };
    let scene =
        Scene::new(Pace { app: per_second(3.0), tenant: per_second(2.0), mailbox: per_second(1.0), ..Pace::default() });
    let ours = mailbox();
    let mates = mailbox_of(ours.tenant_id);
    let begun = Instant::now();
    let mut seen = Vec::new();
    for mailbox in [&ours, &mates, &mailbox(), &mailbox()] {
        assert_eq!(scene.call(mailbox, Ok(())).await, Ok(()));
        seen.push(begun.elapsed().as_millis());
    }
    // The fourth waits for the app.
    assert_eq!(seen, [0, 0, 0, 334], "{seen:?}");

    // Its own bucket has a call again after a second, its tenant's after half of one.
    assert_eq!(scene.call(&ours, Ok(())).await, Ok(()));
    assert_eq!(begun.elapsed().as_millis(), 1000);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_came_are_waited_for_afterwards() {
    let mailbox_bytes = Allowance { calls: None, bytes: Some(Budget::per_second(1000.0)), units: None };
    let scene = Scene::new(Pace { mailbox: mailbox_bytes, ..Pace::default() });
    let ours = mailbox();
    scene.calls.spend_bytes(&ours, 4000).await;
    let begun = Instant::now();
    let fetch = || scene.calls.make_fetch(&ours, Lane::Normal, Box::pin(async { Ok(()) }));

    assert_eq!(scene.call(&ours, Ok(())).await, Ok(()));
    assert_eq!(begun.elapsed().as_secs(), 0, "a look brings none");
    assert_eq!(fetch().await, Ok(()));
    assert_eq!(begun.elapsed().as_secs(), 3);
    scene.calls.spend_bytes(&ours, 60_000).await;
    assert_eq!(fetch().await, not_yet(60.0));
}

#[tokio::test(start_paused = true)]
async fn without_a_place_to_share_budgets_each_process_takes_its_part() {
    let scene = Scene::new(Pace::calls_per_second(6.0));
    scene.calls.set_instances(3);
    let ours = mailbox();
    let begun = Instant::now();
    for _ in 0..6 {
        assert_eq!(scene.call(&ours, Ok(())).await, Ok(()));
    }

    assert_eq!(begun.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn breakers_and_calls_are_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let told = |line: &str| assert!(recorder.handle().render().contains(line), "{}", recorder.handle().render());
    let scene = Scene::new(Pace::default());
    let (ours, others) = (mailbox(), mailbox());
    scene.call(&others, Ok(())).await.unwrap();
    for _ in 0..12 {
        assert!(scene.call(&ours, unavailable()).await.is_err());
    }
    told("mailroom_breakers{provider=\"scripted\",state=\"open\"} 1");
    told("mailroom_breakers{provider=\"scripted\",state=\"closed\"} 1");
    told("mailroom_provider_requests_total{provider=\"scripted\",outcome=\"unavailable\"} 10");
    told("mailroom_provider_requests_total{provider=\"scripted\",outcome=\"ok\"} 1");

    pass(30).await;
    scene.call(&ours, Ok(())).await.unwrap();
    told("mailroom_breakers{provider=\"scripted\",state=\"open\"} 0");
    told("mailroom_breakers{provider=\"scripted\",state=\"half_open\"} 1");

    pass(3600).await;
    scene.call(&others, Ok(())).await.unwrap();
    told("mailroom_breakers{provider=\"scripted\",state=\"half_open\"} 0");
    told("mailroom_breakers{provider=\"scripted\",state=\"closed\"} 1");
}

#[tokio::test(start_paused = true)]
async fn units_are_waited_for_also_when_they_are_more_than_ever_come_at_once() {
    let scene = Scene::new(Pace::default().with_units(None, Some(Budget::per_minute(600.0))));
    let ours = mailbox();
    let other = Mailbox { address: "other@acme.test".into(), ..mailbox() };
    let spend = async |mailbox: &Mailbox, units| {
        let began = Instant::now();
        scene.calls.spend_units(mailbox, units).await.map(|()| began.elapsed().as_secs())
    };

    assert_eq!(spend(&ours, 20).await, Ok(0));
    assert_eq!(spend(&ours, 100).await, Ok(10), "longer than anybody may wait, but nobody is to blame");
    assert_ne!(spend(&mailbox(), 20).await, Ok(0), "an account has one allowance, whichever tenant has it");
    assert_eq!(spend(&other, 20).await, Ok(0), "each account has its own");
    let (first, second) = tokio::join!(spend(&other, 100), spend(&other, 100));
    assert_eq!(first, Ok(10));
    assert!(matches!(second, Err(ConnectorError::NotYet(_))), "{second:?}");
    let refused = scene.calls.make(&other, Box::pin(async { second.map(drop) })).await;
    assert!(refused.is_err());
    let next = scene.calls.make(&other, Box::pin(async { Ok(()) })).await;
    assert_eq!(next, Ok(()), "a quota of ours is no word of the provider");
}

#[tokio::test(start_paused = true)]
async fn the_project_has_one_budget_of_units_for_all_mailboxes() {
    let scene = Scene::new(Pace::default().with_units(Some(Budget::per_minute(600.0)), None));
    assert_eq!(scene.calls.spend_units(&mailbox(), 20).await, Ok(()));
    let began = Instant::now();
    assert_eq!(scene.calls.spend_units(&mailbox(), 20).await, Ok(()));
    assert!(began.elapsed() > Duration::from_secs(1));
    assert_eq!(Scene::new(Pace::default()).calls.spend_units(&mailbox(), 1_000_000).await, Ok(()));
}
