//! Calls wait for their budgets, and are not made while a provider asks to wait.

use domain::{Clock, MailboxId, MailboxSettings, MailboxState, SecretId, SystemClock, TenantSettings};

use super::*;

fn throttled(wait: Duration) -> ConnectorError {
    ConnectorError::Throttled { retry_after: Some(wait) }
}

fn mailbox() -> Mailbox {
    let now = SystemClock.now();
    Mailbox {
        id: MailboxId::new(&SystemClock),
        tenant_id: TenantId::new(&SystemClock),
        provider: Provider::Gmail,
        address: "me@acme.test".into(),
        state: MailboxState::Active,
        state_reason: None,
        state_since: now,
        settings: MailboxSettings::default(),
        tenant_settings: TenantSettings::default(),
        secret_ref: None,
        is_active: true,
        created_at: now,
        updated_at: now,
        version: 1,
    }
}

/// Returns the byte budget of a mailbox with these settings, beside the setting for all IMAP mailboxes.
fn byte_budget(provider: Provider, settings: serde_json::Value, imap_bytes_per_day: Option<u64>) -> Option<Budget> {
    let mailbox = Mailbox { provider, settings: settings.into(), ..mailbox() };
    let settings = CallSettings { imap_bytes_per_day, ..CallSettings::default() };
    settings.budgets_of_mailbox(&mailbox).mailbox.bytes
}

fn at_host(host: &str) -> serde_json::Value {
    serde_json::json!({"connection": {"host": host}})
}

fn own_quota(bytes: u64) -> serde_json::Value {
    serde_json::json!({"connection": {"host": "imap.gmail.com"}, "bytes_per_day": bytes})
}

fn per_day(bytes: f64) -> Option<Budget> {
    Some(Budget::per_day(bytes))
}

#[test]
fn byte_quota_is_own_configured_or_known() {
    assert_eq!(byte_budget(Provider::Imap, at_host("imap.acme.test"), None), None);
    assert_eq!(byte_budget(Provider::Imap, at_host("imap.acme.test"), Some(5_000_000)), per_day(5e6));
    assert_eq!(byte_budget(Provider::Imap, at_host("imap.gmail.com"), None), per_day(2e9));
    assert_eq!(byte_budget(Provider::Imap, at_host("IMAP.GoogleMail.com."), None), per_day(2e9));
    assert_eq!(byte_budget(Provider::Imap, at_host("imap.gmail.com"), Some(0)), None, "0 means unlimited");
    assert_eq!(byte_budget(Provider::Imap, own_quota(7_000), Some(5_000_000)), per_day(7e3));
    assert_eq!(byte_budget(Provider::Imap, own_quota(0), Some(5_000_000)), None);
    assert_eq!(byte_budget(Provider::Outlook, at_host("imap.gmail.com"), Some(5_000_000)), None);
    assert_eq!(byte_budget(Provider::Outlook, own_quota(7_000), None), per_day(7e3));
}

#[test]
fn byte_quota_is_inherited_from_the_tenant() {
    let tenant_settings = TenantSettings { bytes_per_day: Some(5_000), ..TenantSettings::default() };
    let settings = CallSettings { imap_bytes_per_day: Some(9_000), ..CallSettings::default() };
    let inherits = Mailbox { provider: Provider::Imap, tenant_settings, ..mailbox() };
    let own = Mailbox { settings: own_quota(7_000).into(), ..inherits.clone() };

    assert_eq!(settings.budgets_of_mailbox(&inherits).mailbox.bytes, per_day(5e3));
    assert_eq!(settings.budgets_of_mailbox(&own).mailbox.bytes, per_day(7e3));
}

#[tokio::test(start_paused = true)]
async fn mailbox_over_its_byte_quota_waits_alone() {
    let calls = Calls::default();
    let (ours, other) = (
        Mailbox { settings: serde_json::json!({"bytes_per_day": 86_400}).into(), ..mailbox() },
        Mailbox { settings: serde_json::json!({}).into(), ..mailbox() },
    );
    let call = async |mailbox| calls.make_fetch(mailbox, Lane::Normal, Box::pin(async { Ok(()) })).await;
    for mailbox in [&ours, &other] {
        assert_eq!(call(mailbox).await, Ok(()));
        calls.spend_bytes(mailbox, 8_640 + 90).await;
    }

    let Err(ConnectorError::RateLimited(wait)) = call(&ours).await else { panic!("it owes 90 bytes, at 0.9 a second") };
    assert!((99..=106).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(calls.wait_reason(&ours), "the mailbox's daily byte quota is used up");
    assert_eq!(call(&other).await, Ok(()));
    assert_eq!(calls.make(&ours, Box::pin(async { Ok(()) })).await, Ok(()), "polls cost no bytes");
    assert!(calls.owes_bytes(&ours).await && !calls.owes_bytes(&other).await);

    tokio::time::advance(wait).await;
    assert!(!calls.owes_bytes(&ours).await);
    let asked = async { Err::<(), _>(throttled(Duration::from_secs(300))) };
    assert_eq!(calls.make(&ours, Box::pin(asked)).await, Err(throttled(Duration::from_secs(300))));
    assert_eq!(calls.wait_reason(&ours), "the provider asked to wait");
}

/// Returns another mailbox of the same tenant.
fn same_tenant(mailbox: &Mailbox, secret: Option<SecretId>) -> Mailbox {
    Mailbox { id: MailboxId::new(&SystemClock), secret_ref: secret.map(|secret| secret.to_string()), ..mailbox.clone() }
}

#[tokio::test(start_paused = true)]
async fn each_owner_has_its_own_budgets() {
    let (ours, stranger) = (mailbox(), mailbox());
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
        let counted = Calls::new(settings.clone(), Arc::new(SystemRandom), None);
        let weighed = Calls::new(settings, Arc::new(SystemRandom), None);
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
    let calls = Calls::new(settings, Arc::new(SystemRandom), None);
    let other = Mailbox { provider: Provider::Outlook, ..mailbox() };
    let ours = mailbox();
    let mut hanging: Vec<_> =
        (0..3).map(|_| Box::pin(calls.make::<()>(&ours, Box::pin(std::future::pending())))).collect();
    for call in &mut hanging {
        assert!(futures_util::poll!(call).is_pending());
    }

    let refused = calls.make(&mailbox(), Box::pin(async { Ok(()) })).await;
    assert!(matches!(refused, Err(ConnectorError::RateLimited(wait)) if wait >= Duration::from_secs(5)), "{refused:?}");
    assert_eq!(calls.make(&other, Box::pin(async { Ok(()) })).await, Ok(()));

    drop(hanging.pop());
    assert_eq!(calls.make(&mailbox(), Box::pin(async { Ok(()) })).await, Ok(()), "a cancelled call frees its permit");
}

/// Calls that do not end.
async fn hang<'a>(
    calls: &'a Calls,
    kind: CallKind,
    mailbox: &'a Mailbox,
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
    let calls = Calls::new(settings, Arc::new(SystemRandom), None);
    let ours = mailbox();
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
        let calls = Calls::new(settings, Arc::new(SystemRandom), None);
        let ours = mailbox();
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
    let calls = Calls::new(settings, Arc::new(SystemRandom), None);
    let (ours, other) = (mailbox(), mailbox());
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
    let calls =
        Calls::new(CallSettings { default_budgets: budgets, ..CallSettings::default() }, Arc::new(SystemRandom), None);
    let kept = || {
        let state = calls.inner.state();
        (state.breakers.len(), state.retry_after.len(), state.buckets.len())
    };
    for _ in 0..100 {
        let mailbox = mailbox();
        let _ = calls.make::<()>(&mailbox, Box::pin(async { Err(throttled(Duration::from_secs(90))) })).await;
        calls.spend_bytes(&mailbox, 100).await;
    }
    assert_eq!(kept(), (100, 100, 400));

    tokio::time::advance(Duration::from_secs(89)).await;
    let _ = calls.make(&mailbox(), Box::pin(async { Ok(()) })).await;
    assert_eq!(kept(), (101, 100, 202), "calls are affordable again, bytes are still owed");
    tokio::time::advance(Duration::from_secs(601)).await;
    let _ = calls.make(&mailbox(), Box::pin(async { Ok(()) })).await;
    assert_eq!(kept(), (1, 0, 2));
}
