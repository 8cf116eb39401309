//! Calls wait for their budgets, and are not made while a provider asks to wait.

use domain::{MailboxId, SecretId, Sha256, SystemClock};

use crate::budget::Budget;
use crate::call_settings::{Allowance, CallBudgets};
use crate::target::{Endpoint, TargetAccount};

use super::*;

fn throttled(wait: Duration) -> ConnectorError {
    ConnectorError::Throttled { retry_after: Some(wait) }
}

fn target() -> Target {
    Target {
        service: Service::Provider(Provider::Gmail),
        endpoint: None,
        tenant: TenantId::new(&SystemClock),
        account: Some(account()),
    }
}

fn account() -> TargetAccount {
    let mailbox = MailboxId::new(&SystemClock);
    TargetAccount { mailbox, credential: None, name: Sha256::of(b"me@acme.test"), bytes_per_day: None }
}

/// Returns a mailbox of a tenant at a server.
fn at_host(tenant: TenantId, host: &str) -> Target {
    Target { service: Service::Provider(Provider::Imap), endpoint: Some(Endpoint::new(host, 993)), tenant, ..target() }
}

#[tokio::test(start_paused = true)]
async fn mailbox_over_its_byte_quota_waits_alone() {
    let calls = Gateway::default();
    let limited = TargetAccount { bytes_per_day: Some(86_400), ..account() };
    let (ours, other) = (Target { account: Some(limited), ..target() }, target());
    let call = async |mailbox| calls.make_fetch(mailbox, Lane::Normal, Box::pin(async { Ok(()) })).await;
    for mailbox in [&ours, &other] {
        assert_eq!(call(mailbox).await, Ok(()));
        calls.spend_bytes(mailbox, 8_640 + 90).await;
    }

    let Err(ConnectorError::RateLimited(wait)) = call(&ours).await else { panic!("it owes 90 bytes, at 0.9 a second") };
    assert!((99..=106).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(calls.wait_reason(&ours), LimitReason::ByteQuota);
    assert_eq!(call(&other).await, Ok(()));
    assert_eq!(calls.make(&ours, Box::pin(async { Ok(()) })).await, Ok(()), "polls cost no bytes");
    assert!(calls.owes_bytes(&ours).await && !calls.owes_bytes(&other).await);

    tokio::time::advance(wait).await;
    assert!(!calls.owes_bytes(&ours).await);
    let asked = async { Err::<(), _>(throttled(Duration::from_secs(300))) };
    assert_eq!(calls.make(&ours, Box::pin(asked)).await, Err(throttled(Duration::from_secs(300))));
    assert_eq!(calls.wait_reason(&ours), LimitReason::RetryAfter);
}

/// Returns another mailbox of the same tenant.
fn same_tenant(target: &Target, credential: Option<SecretId>) -> Target {
    Target { account: Some(TargetAccount { credential, ..account() }), ..target.clone() }
}

#[tokio::test(start_paused = true)]
async fn each_owner_has_its_own_budgets() {
    let (ours, stranger) = (target(), target());
    let secret = SecretId::new(&SystemClock);
    let colleague = same_tenant(&ours, None);
    let (own, shared) = (same_tenant(&ours, Some(secret)), same_tenant(&ours, Some(secret)));
    let one = Allowance { calls: Some(Budget::per_second(0.01)), bytes: Some(Budget::per_second(0.01)), units: None };
    // Which of the later callers, in the order above, have to wait.
    for (budgets, waiting) in [
        (CallBudgets { app: one, ..CallBudgets::default() }, [true, true, true, true, true]),
        (CallBudgets { tenant: one, ..CallBudgets::default() }, [true, true, true, true, false]),
        (CallBudgets { credential: one, ..CallBudgets::default() }, [true, true, false, true, false]),
        (CallBudgets { mailbox: one, ..CallBudgets::default() }, [true, false, false, false, false]),
    ] {
        let settings = CallSettings { default_budgets: budgets, ..CallSettings::default() };
        let counted = Gateway::new(settings.clone(), Arc::new(SystemRandom), None);
        let weighed = Gateway::new(settings, Arc::new(SystemRandom), None);
        let those = [&ours, &ours, &colleague, &own, &shared, &stranger];
        let mut of_calls = Vec::new();
        let mut of_bytes = Vec::new();
        for mailbox in those {
            let made = counted.make(mailbox, Box::pin(async { Ok(()) })).await;
            of_calls.push(matches!(made, Err(ConnectorError::RateLimited(_))));
            of_bytes.push(weighed.owes_bytes(mailbox).await);
            weighed.spend_bytes(mailbox, 10).await;
        }
        assert_eq!((of_calls[0], of_bytes[0]), (false, false), "{budgets:?}");
        assert_eq!((&of_calls[1..], &of_bytes[1..]), (&waiting[..], &waiting[..]), "{budgets:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_provider_does_not_block_others() {
    let settings = CallSettings { max_in_flight: Some(3), ..CallSettings::default() };
    let calls = Gateway::new(settings, Arc::new(SystemRandom), None);
    let other = Target { service: Service::Provider(Provider::Outlook), ..target() };
    let ours = target();
    let mut hanging: Vec<_> =
        (0..3).map(|_| Box::pin(calls.make::<()>(&ours, Box::pin(std::future::pending())))).collect();
    for call in &mut hanging {
        assert!(futures_util::poll!(call).is_pending());
    }

    let refused = calls.make(&target(), Box::pin(async { Ok(()) })).await;
    assert!(matches!(refused, Err(ConnectorError::RateLimited(wait)) if wait >= Duration::from_secs(5)), "{refused:?}");
    assert_eq!(calls.make(&other, Box::pin(async { Ok(()) })).await, Ok(()));

    drop(hanging.pop());
    assert_eq!(calls.make(&target(), Box::pin(async { Ok(()) })).await, Ok(()), "a cancelled call frees its permit");
}

/// Calls that do not end.
async fn hang<'a>(
    calls: &'a Gateway,
    kind: CallKind,
    mailbox: &'a Target,
    count: usize,
) -> Vec<impl Future<Output = Result<(), ConnectorError>> + Unpin + 'a> {
    let mut hanging: Vec<_> =
        (0..count).map(|_| Box::pin(calls.make_kind(kind, mailbox, Box::pin(std::future::pending())))).collect();
    for call in &mut hanging {
        assert!(futures_util::poll!(call).is_pending());
    }
    hanging
}

#[tokio::test(start_paused = true)]
async fn fetches_leave_permits_to_polls_and_new_mail() {
    let settings = CallSettings { max_in_flight: Some(10), ..CallSettings::default() };
    let calls = Gateway::new(settings, Arc::new(SystemRandom), None);
    let ours = target();
    let old = hang(&calls, CallKind::Fetch(Lane::Low), &ours, 6).await;
    let refused = calls.make_fetch(&ours, Lane::Low, Box::pin(async { Ok(()) })).await;
    assert!(matches!(refused, Err(ConnectorError::RateLimited(_))), "{refused:?}");
    let mut fetches = hang(&calls, CallKind::Fetch(Lane::Normal), &ours, 2).await;

    let fetch = async || calls.make_fetch(&ours, Lane::Normal, Box::pin(async { Ok(()) })).await;
    assert!(matches!(fetch().await, Err(ConnectorError::RateLimited(_))), "all that may be are under way");
    let looks = hang(&calls, CallKind::Poll, &ours, 2).await;
    assert!(matches!(calls.make(&ours, Box::pin(async { Ok(()) })).await, Err(ConnectorError::RateLimited(_))));

    drop(fetches.pop());
    assert_eq!(fetch().await, Ok(()));
    drop((old, fetches, looks));
    let looks = hang(&calls, CallKind::Poll, &ours, 10).await;
    assert!(matches!(fetch().await, Err(ConnectorError::RateLimited(_))), "there are no more places than that");
    drop(looks);
    assert_eq!(hang(&calls, CallKind::Fetch(Lane::Normal), &ours, 8).await.len(), 8, "who was refused keeps no place");
}

#[tokio::test(start_paused = true)]
async fn refused_call_takes_no_budget() {
    for kind in [CallKind::Poll, CallKind::Fetch(Lane::Normal)] {
        let budgets = CallBudgets::calls_per_second(10.0);
        let settings = CallSettings { default_budgets: budgets, max_in_flight: Some(2), ..CallSettings::default() };
        let calls = Gateway::new(settings, Arc::new(SystemRandom), None);
        let ours = target();
        let hanging = hang(&calls, CallKind::Poll, &ours, 2).await;
        for _ in 0..1000 {
            let refused = calls.make_kind(kind, &ours, Box::pin(async { Ok(()) })).await;
            assert!(matches!(refused, Err(ConnectorError::RateLimited(_))), "{refused:?}");
        }

        drop(hanging);
        for _ in 0..8 {
            let made = futures_util::poll!(Box::pin(calls.make_kind(kind, &ours, Box::pin(async { Ok(()) }))));
            assert_eq!(made, std::task::Poll::Ready(Ok(())), "{kind:?}: at once, as two have called of ten");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_budget_holds_no_permit() {
    let slow = Allowance { calls: Some(Budget::per_second(1.0)), ..Allowance::default() };
    let budgets = CallBudgets { tenant: slow, ..CallBudgets::default() };
    let settings = CallSettings { default_budgets: budgets, max_in_flight: Some(2), ..CallSettings::default() };
    let calls = Gateway::new(settings, Arc::new(SystemRandom), None);
    let (ours, other) = (target(), target());
    assert_eq!(calls.make(&ours, Box::pin(async { Ok(()) })).await, Ok(()));
    for kind in [CallKind::Poll, CallKind::Fetch(Lane::Normal), CallKind::Fetch(Lane::Low)] {
        let waiting = hang(&calls, kind, &ours, 1).await;
        assert_eq!(calls.make_kind(kind, &other, Box::pin(async { Ok(()) })).await, Ok(()), "{kind:?}");
        drop(waiting);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_state_is_evicted() {
    let allowance =
        Allowance { calls: Some(Budget::per_second(1.0)), bytes: Some(Budget::per_second(1.0)), units: None };
    let budgets = CallBudgets { tenant: allowance, mailbox: allowance, ..CallBudgets::default() };
    let calls = Gateway::new(
        CallSettings { default_budgets: budgets, ..CallSettings::default() },
        Arc::new(SystemRandom),
        None,
    );
    let kept = || {
        let state = calls.inner.state();
        (state.breakers.len(), state.retry_after.len(), state.buckets.len())
    };
    for _ in 0..100 {
        let mailbox = target();
        let _ = calls.make::<()>(&mailbox, Box::pin(async { Err(throttled(Duration::from_secs(90))) })).await;
        calls.spend_bytes(&mailbox, 100).await;
    }
    assert_eq!(kept(), (100, 100, 400));

    tokio::time::advance(Duration::from_secs(89)).await;
    let _ = calls.make(&target(), Box::pin(async { Ok(()) })).await;
    assert_eq!(kept(), (101, 100, 202), "calls are affordable again, bytes are still owed");
    tokio::time::advance(Duration::from_secs(601)).await;
    let _ = calls.make(&target(), Box::pin(async { Ok(()) })).await;
    assert_eq!(kept(), (1, 0, 2));
}

/// A dead server opens the breaker of its own callers only.
#[tokio::test(start_paused = true)]
async fn dead_server_stops_only_calls_of_its_tenant_to_it() {
    let calls = Gateway::default();
    let (ours, stranger) = (TenantId::new(&SystemClock), TenantId::new(&SystemClock));
    for _ in 0..10 {
        let down = async { Err::<(), _>(ConnectorError::Unavailable("refused".to_owned())) };
        let _ = calls.make(&at_host(ours, "dead.acme.test"), Box::pin(down)).await;
    }

    let call = async |target: Target| calls.make(&target, Box::pin(async { Ok(()) })).await;
    let stopped = call(at_host(ours, "Dead.acme.test.")).await;
    assert!(matches!(stopped, Err(ConnectorError::RateLimited(_))), "{stopped:?}");
    let other_port = Target { endpoint: Some(Endpoint::new("dead.acme.test", 143)), ..at_host(ours, "") };
    for target in [at_host(ours, "imap.acme.test"), at_host(stranger, "dead.acme.test"), other_port] {
        assert_eq!(call(target.clone()).await, Ok(()), "{target:?}");
    }
    let service = Service::Provider(Provider::Imap);
    let endpoint = Some(Endpoint::new("dead.acme.test", 993));
    let open = LimitReason::BreakerOpen { service, endpoint, since: Duration::ZERO };
    assert_eq!(calls.wait_reason(&at_host(ours, "dead.acme.test")), open);
}

/// Keeps as many calls to a target in flight as there may be.
async fn fill<'a>(calls: &'a Gateway, target: &'a Target) -> Vec<ConnectorFuture<'a, ()>> {
    let mut held: Vec<ConnectorFuture<'a, ()>> = Vec::new();
    loop {
        let mut call: ConnectorFuture<'a, ()> = Box::pin(calls.make(target, Box::pin(std::future::pending())));
        if futures_util::poll!(&mut call).is_ready() {
            return held;
        }
        held.push(call);
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_server_leaves_calls_to_others() {
    let settings = CallSettings { max_in_flight: Some(16), ..CallSettings::default() };
    let calls = Gateway::new(settings, Arc::new(SystemRandom), None);
    let [first, second, third] = [(); 3].map(|()| TenantId::new(&SystemClock));
    let hanging = [first, second, third].map(|tenant| at_host(tenant, "hangs.acme.test"));

    let held = fill(&calls, &hanging[0]).await;
    assert_eq!(held.len(), 6, "a tenant has three quarters of a server's calls");
    let more = fill(&calls, &hanging[1]).await;
    assert_eq!(more.len(), 2);
    assert_eq!(fill(&calls, &hanging[2]).await.len(), 0, "a server has half");

    let others = [at_host(first, "a.acme.test"), at_host(first, "b.acme.test"), at_host(second, "a.acme.test")];
    let at_a = fill(&calls, &others[0]).await;
    assert_eq!(at_a.len(), 6, "a tenant has three quarters over all servers");
    assert_eq!(fill(&calls, &others[1]).await.len(), 0);
    assert_eq!(fill(&calls, &others[2]).await.len(), 2, "all calls of the provider are used");
    drop((held, more, at_a));

    assert_eq!(calls.inner.calls_in_flight.scopes_in_use(), 0, "scopes without calls are dropped");
}

/// Requests to webhooks pass the same gateway as calls to providers, and have no part in each other's limits.
#[tokio::test(start_paused = true)]
async fn dead_webhook_server_stops_only_its_tenant_there() {
    let calls = Gateway::default();
    let [ours, stranger] = [(); 2].map(|()| TenantId::new(&SystemClock));
    let at = |tenant, host| Target::webhook(tenant, Endpoint::new(host, 443));
    for _ in 0..10 {
        let down = async { Err::<(), _>(ConnectorError::Unavailable("the connection failed".to_owned())) };
        let _ = calls.make(&at(ours, "dead.acme.test"), Box::pin(down)).await;
    }

    let call = async |target: Target| calls.make(&target, Box::pin(async { Ok(()) })).await;
    assert!(matches!(call(at(ours, "dead.acme.test")).await, Err(ConnectorError::RateLimited(_))));
    for target in [at(ours, "hooks.acme.test"), at(stranger, "dead.acme.test"), at_host(ours, "dead.acme.test")] {
        assert_eq!(call(target.clone()).await, Ok(()), "{target:?}");
    }
    tokio::time::advance(PROBE_INTERVAL * 2).await;
    assert_eq!(call(at(ours, "dead.acme.test")).await, Ok(()), "a probe");
}

/// Opens as many connections as there may be.
fn listen(calls: &Gateway, target: &Target) -> Vec<CallPermit> {
    std::iter::from_fn(|| calls.admit_listener(target).ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_shared_by_server_and_tenant() {
    let calls = Gateway::default();
    let [ours, stranger] = [(); 2].map(|()| TenantId::new(&SystemClock));
    let [of_server, of_tenant, of_tenant_at_server] = crate::call_scopes::server_limits(MAX_IDLE_CONNECTIONS);

    let at_a = listen(&calls, &at_host(ours, "a.acme.test"));
    let at_b = listen(&calls, &at_host(ours, "b.acme.test"));
    let of_stranger = listen(&calls, &at_host(stranger, "a.acme.test"));

    assert_eq!((at_a.len(), at_b.len()), (of_tenant_at_server, of_tenant - of_tenant_at_server));
    assert_eq!(of_stranger.len(), of_server - of_tenant_at_server);
    drop((at_a, at_b, of_stranger));
    assert_eq!(calls.inner.idle_connections.scopes_in_use(), 0, "scopes without connections are dropped");
    assert_eq!(calls.make(&at_host(ours, "a.acme.test"), Box::pin(async { Ok(()) })).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn open_breaker_refuses_listeners_too() {
    let calls = Gateway::default();
    let target = at_host(TenantId::new(&SystemClock), "dead.acme.test");
    for _ in 0..10 {
        let down = async { Err::<(), _>(ConnectorError::Unavailable("refused".to_owned())) };
        let _ = calls.make(&target, Box::pin(down)).await;
    }

    assert!(matches!(calls.admit_listener(&target), Err(ConnectorError::RateLimited(_))));
}

#[tokio::test(start_paused = true)]
async fn used_up_quota_is_named() {
    let budgets = CallBudgets::default().with_units(None, Some(Budget::per_minute(600.0)));
    let settings = CallSettings { default_budgets: budgets, ..CallSettings::default() };
    let calls = Gateway::new(settings, Arc::new(SystemRandom), None);
    let target = target();

    let (_, refused) = tokio::join!(calls.spend_units(&target, 100), calls.spend_units(&target, 100));

    assert!(matches!(refused, Err(ConnectorError::RateLimited(_))), "{refused:?}");
    assert_eq!(calls.wait_reason(&target), LimitReason::UnitQuota(target.service));
}

/// However few workers there are, a poll is made beside as much backfill as there may be.
#[tokio::test(start_paused = true)]
async fn poll_is_made_beside_backfill_in_a_small_process() {
    for max in [2, 4, 8, 12, 16] {
        let calls = Gateway::new(
            CallSettings { max_in_flight: Some(max), ..CallSettings::default() },
            Arc::new(SystemRandom),
            None,
        );
        let target = at_host(TenantId::new(&SystemClock), "imap.acme.test");
        let mut held: Vec<ConnectorFuture<'_, ()>> = Vec::new();
        loop {
            let hang = Box::pin(std::future::pending());
            let mut call: ConnectorFuture<'_, ()> = Box::pin(calls.make_fetch(&target, Lane::Low, hang));
            if futures_util::poll!(&mut call).is_ready() {
                break;
            }
            held.push(call);
        }

        assert!(!held.is_empty());
        assert_eq!(calls.make(&target, Box::pin(async { Ok(()) })).await, Ok(()), "of {max}");
    }
}
