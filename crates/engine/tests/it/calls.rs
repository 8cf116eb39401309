//! Calls to a provider: when they are made, when not, and how long they may take. The clock stands still but for the tests.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::RandomSource;
use domain::connector::ConnectorFuture;
use domain::{ConnectorError, Lane, MailboxId, Provider, Sha256, SystemClock, TenantId};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use outbound::budget::Budget;
use outbound::{Allowance, CallBudgets, CallSettings, Endpoint, Gateway, Service, Target, TargetAccount};
use tokio::time::{Instant, advance};

/// No jitter.
#[derive(Debug)]
struct Zeros;

impl RandomSource for Zeros {
    fn next_u64(&self) -> u64 {
        0
    }
}

/// Calls to a provider, and how many of them were made.
struct CountedCalls {
    calls: Gateway,
    made: AtomicU32,
}

impl CountedCalls {
    fn new(pace: CallBudgets) -> Self {
        let settings = CallSettings { default_budgets: pace, ..CallSettings::default() };
        Self { calls: Gateway::new(settings, Arc::new(Zeros), None), made: AtomicU32::new(0) }
    }

    async fn call(&self, target: &Target, outcome: Result<(), ConnectorError>) -> Result<(), ConnectorError> {
        let call: ConnectorFuture<'_, ()> = Box::pin(async {
            self.made.fetch_add(1, Ordering::Relaxed);
            outcome
        });
        self.calls.make(target, call).await
    }

    /// Calls for mail, or for the directory of the tenant.
    async fn call_either(
        &self,
        target: &Target,
        is_mail: bool,
        outcome: Result<(), ConnectorError>,
    ) -> Result<(), ConnectorError> {
        if is_mail {
            self.call(target, outcome).await
        } else {
            self.calls.make_directory_call(target, Box::pin(async { outcome })).await
        }
    }

    async fn fetch(&self, target: &Target) -> Result<(), ConnectorError> {
        self.calls.make_fetch(target, Lane::Normal, Box::pin(async { Ok(()) })).await
    }

    /// Spends units of the quota; after how many seconds.
    async fn spend(&self, target: &Target, units: u32) -> Result<u64, ConnectorError> {
        let began = Instant::now();
        self.calls.spend_units(target, units).await.map(|()| began.elapsed().as_secs())
    }

    fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }
}

pub fn target() -> Target {
    target_of_tenant(TenantId::new(&SystemClock))
}

fn target_of_tenant(tenant: TenantId) -> Target {
    Target {
        service: Service::Provider(Provider::Imap),
        endpoint: Some(Endpoint::new("imap.acme.test", 993)),
        tenant,
        account: Some(account("me@acme.test")),
    }
}

fn account(address: &str) -> TargetAccount {
    TargetAccount {
        mailbox: MailboxId::new(&SystemClock),
        credential: None,
        name: Sha256::of(address.as_bytes()),
        bytes_per_day: None,
    }
}

fn unavailable() -> Result<(), ConnectorError> {
    Err(ConnectorError::Unavailable("down".into()))
}

fn not_yet(seconds: f64) -> Result<(), ConnectorError> {
    Err(ConnectorError::RateLimited(Duration::from_secs_f64(seconds)))
}

fn wait(seconds: f64) -> Result<(), ConnectorError> {
    Err(ConnectorError::Throttled { retry_after: Some(Duration::from_secs_f64(seconds)) })
}

async fn pass(seconds: u64) {
    advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn open_breaker_probes_every_thirty_seconds() {
    let counted = CountedCalls::new(CallBudgets::default());
    let (ours, others) = (target(), target());
    let mates = target_of_tenant(ours.tenant);
    for _ in 0..10 {
        assert_eq!(counted.call(&ours, unavailable()).await, unavailable());
    }

    assert_eq!(counted.call(&ours, Ok(())).await, not_yet(30.0));
    assert_eq!(counted.call(&mates, Ok(())).await, not_yet(30.0));
    assert_eq!(counted.made(), 10);
    assert_eq!(counted.call(&others, Ok(())).await, Ok(()));

    for probe in 1..=3 {
        pass(30).await;
        assert_eq!(counted.call(&ours, Ok(())).await, Ok(()), "probe {probe}");
        if probe < 3 {
            assert_eq!(counted.call(&mates, Ok(())).await, not_yet(30.0));
        }
    }
    assert_eq!(counted.call(&mates, Ok(())).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn mail_and_directory_have_separate_breakers() {
    let ours = target();
    for fails in [true, false] {
        let counted = CountedCalls::new(CallBudgets::default());
        for _ in 0..10 {
            assert_eq!(counted.call_either(&ours, fails, unavailable()).await, unavailable());
        }
        assert_eq!(counted.call_either(&ours, fails, Ok(())).await, not_yet(30.0));
        assert_eq!(counted.call_either(&ours, !fails, Ok(())).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_do_not_open_the_breaker() {
    let counted = CountedCalls::new(CallBudgets::default());
    let ours = target();
    let answers = [
        ConnectorError::Unauthorized("no".into()),
        ConnectorError::Gone,
        ConnectorError::CursorExpired,
        ConnectorError::Protocol("odd".into()),
    ];
    for _ in 0..10 {
        for answer in &answers {
            assert_eq!(counted.call(&ours, Err(answer.clone())).await, Err(answer.clone()));
        }
        let later = ConnectorError::Throttled { retry_after: None };
        assert_eq!(counted.call(&ours, Err(later.clone())).await, Err(later));
    }
    // 40 answers and 10 that say nothing: the 40th failure makes half.
    for _ in 0..40 {
        assert_eq!(counted.call(&ours, unavailable()).await, unavailable());
    }

    assert_eq!(counted.call(&ours, Ok(())).await, not_yet(30.0));
}

#[tokio::test(start_paused = true)]
async fn throttled_mailbox_waits_exactly_as_asked() {
    let counted = CountedCalls::new(CallBudgets::default());
    let ours = target();
    let mates = target_of_tenant(ours.tenant);
    assert_eq!(counted.call(&ours, wait(17.0)).await, wait(17.0));

    pass(16).await;
    assert_eq!(counted.call(&ours, Ok(())).await, wait(1.0));
    assert_eq!(counted.made(), 1);
    assert_eq!(counted.call(&mates, Ok(())).await, Ok(()));
    pass(1).await;
    assert_eq!(counted.call(&ours, Ok(())).await, Ok(()));

    // A number that nobody means.
    let never = Err(ConnectorError::Throttled { retry_after: Some(Duration::MAX) });
    assert_eq!(counted.call(&ours, never.clone()).await, never);
    assert!(counted.call(&ours, Ok(())).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn hanging_call_times_out_as_a_failure() {
    let counted = CountedCalls::new(CallBudgets::default());
    let ours = target();
    let begun = Instant::now();
    let all = (0..10).map(|_| counted.calls.make::<()>(&ours, Box::pin(pending())));
    for outcome in futures_util::future::join_all(all).await {
        assert_eq!(outcome, Err(ConnectorError::Unavailable("no answer within 600 s".into())));
    }

    assert_eq!(begun.elapsed().as_secs(), 600);
    assert_eq!(counted.call(&ours, Ok(())).await, not_yet(30.0));
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_the_rate_limit() {
    let counted = CountedCalls::new(CallBudgets::calls_per_second(2.0));
    let ours = target();
    let begun = Instant::now();
    let outcomes = futures_util::future::join_all((0..13).map(|_| counted.call(&ours, Ok(())))).await;

    // Two at once, ten in the five seconds after.
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 12);
    assert_eq!(outcomes[12], not_yet(5.5));
    assert_eq!(begun.elapsed().as_secs(), 5);
}

fn calls_per_second(count: f64) -> Allowance {
    Allowance { calls: Some(Budget::per_second(count)), bytes: None, units: None }
}

#[tokio::test(start_paused = true)]
async fn mailboxes_share_the_budget_of_the_app() {
    let counted = CountedCalls::new(CallBudgets {
        app: calls_per_second(3.0),
        tenant: calls_per_second(2.0),
        mailbox: calls_per_second(1.0),
        ..CallBudgets::default()
    });
    let ours = target();
    let mates = target_of_tenant(ours.tenant);
    let begun = Instant::now();
    let mut seen = Vec::new();
    for target in [&ours, &mates, &self::target(), &self::target()] {
        assert_eq!(counted.call(target, Ok(())).await, Ok(()));
        seen.push(begun.elapsed().as_millis());
    }
    // The fourth waits for the app.
    assert_eq!(seen, [0, 0, 0, 334], "{seen:?}");

    // Its own bucket has a call again after a second, its tenant's after half of one.
    assert_eq!(counted.call(&ours, Ok(())).await, Ok(()));
    assert_eq!(begun.elapsed().as_millis(), 1000);
}

#[tokio::test(start_paused = true)]
async fn fetched_bytes_delay_the_next_fetch() {
    let mailbox_bytes = Allowance { calls: None, bytes: Some(Budget::per_second(1000.0)), units: None };
    let counted = CountedCalls::new(CallBudgets { mailbox: mailbox_bytes, ..CallBudgets::default() });
    let ours = target();
    counted.calls.spend_bytes(&ours, 4000).await;
    let begun = Instant::now();

    assert_eq!(counted.call(&ours, Ok(())).await, Ok(()));
    assert_eq!(begun.elapsed().as_secs(), 0, "a look brings none");
    assert_eq!(counted.fetch(&ours).await, Ok(()));
    assert_eq!(begun.elapsed().as_secs(), 3);
    counted.calls.spend_bytes(&ours, 60_000).await;
    assert_eq!(counted.fetch(&ours).await, not_yet(60.0));
}

#[tokio::test(start_paused = true)]
async fn processes_split_a_budget_without_redis() {
    let counted = CountedCalls::new(CallBudgets::calls_per_second(6.0));
    counted.calls.set_instances(3);
    let ours = target();
    let begun = Instant::now();
    for _ in 0..6 {
        assert_eq!(counted.call(&ours, Ok(())).await, Ok(()));
    }

    assert_eq!(begun.elapsed().as_secs(), 2);
}

fn assert_rendered(recorder: &PrometheusRecorder, line: &str) {
    let rendered = recorder.handle().render();
    assert!(rendered.contains(line), "{rendered}");
}

#[tokio::test(start_paused = true)]
async fn breakers_and_calls_are_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let counted = CountedCalls::new(CallBudgets::default());
    let (ours, others) = (target(), target());
    counted.call(&others, Ok(())).await.unwrap();
    for _ in 0..12 {
        assert!(counted.call(&ours, unavailable()).await.is_err());
    }
    assert_rendered(&recorder, "mailroom_breakers{provider=\"imap\",state=\"open\"} 1");
    assert_rendered(&recorder, "mailroom_breakers{provider=\"imap\",state=\"closed\"} 1");
    assert_rendered(&recorder, "mailroom_provider_requests_total{provider=\"imap\",outcome=\"unavailable\"} 10");
    assert_rendered(&recorder, "mailroom_provider_requests_total{provider=\"imap\",outcome=\"ok\"} 1");

    pass(30).await;
    counted.call(&ours, Ok(())).await.unwrap();
    assert_rendered(&recorder, "mailroom_breakers{provider=\"imap\",state=\"open\"} 0");
    assert_rendered(&recorder, "mailroom_breakers{provider=\"imap\",state=\"half_open\"} 1");

    pass(3600).await;
    counted.call(&others, Ok(())).await.unwrap();
    assert_rendered(&recorder, "mailroom_breakers{provider=\"imap\",state=\"half_open\"} 0");
    assert_rendered(&recorder, "mailroom_breakers{provider=\"imap\",state=\"closed\"} 1");
}

#[tokio::test(start_paused = true)]
async fn quota_units_are_waited_for() {
    let counted = CountedCalls::new(CallBudgets::default().with_units(None, Some(Budget::per_minute(600.0))));
    let ours = target();
    let other = Target { account: Some(account("other@acme.test")), ..target() };

    assert_eq!(counted.spend(&ours, 20).await, Ok(0));
    assert_eq!(counted.spend(&ours, 100).await, Ok(10), "longer than anybody may wait, but nobody is to blame");
    assert_ne!(counted.spend(&target(), 20).await, Ok(0), "an account has one allowance, whichever tenant has it");
    assert_eq!(counted.spend(&other, 20).await, Ok(0), "each account has its own");
    let (first, second) = tokio::join!(counted.spend(&other, 100), counted.spend(&other, 100));
    assert_eq!(first, Ok(10));
    assert!(matches!(second, Err(ConnectorError::RateLimited(_))), "{second:?}");
    let refused = counted.calls.make(&other, Box::pin(async { second.map(drop) })).await;
    assert!(refused.is_err());
    let next = counted.calls.make(&other, Box::pin(async { Ok(()) })).await;
    assert_eq!(next, Ok(()), "a quota of ours is no word of the provider");
}

#[tokio::test(start_paused = true)]
async fn mailboxes_share_the_unit_budget_of_the_app() {
    let counted = CountedCalls::new(CallBudgets::default().with_units(Some(Budget::per_minute(600.0)), None));
    assert_eq!(counted.calls.spend_units(&target(), 20).await, Ok(()));
    let began = Instant::now();
    assert_eq!(counted.calls.spend_units(&target(), 20).await, Ok(()));
    assert!(began.elapsed() > Duration::from_secs(1));
    assert_eq!(CountedCalls::new(CallBudgets::default()).calls.spend_units(&target(), 1_000_000).await, Ok(()));
}
