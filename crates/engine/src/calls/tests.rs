//! Whoever calls waits for the budgets, and nobody calls who was asked not to.

use domain::{Clock, MailboxState, SecretId, SystemClock};

use super::*;

fn mailbox() -> Mailbox {
    let now = SystemClock.now();
    Mailbox {
        id: MailboxId::new(&SystemClock),
        tenant_id: TenantId::new(&SystemClock),
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

#[test]
fn a_mailbox_has_the_allowance_that_it_says_itself_or_that_its_server_is_known_for() {
    let of = |provider, settings, at_imap| {
        let settings = Mailbox { provider, settings, ..mailbox() };
        let calls = CallSettings { imap_bytes_per_day: at_imap, ..CallSettings::default() };
        Calls::new(calls, Arc::new(SystemDice), None).inner.pace(&settings).mailbox.bytes
    };
    let at = |host: &str| serde_json::json!({"connection": {"host": host}});
    let own = |bytes: u64| serde_json::json!({"connection": {"host": "imap.gmail.com"}, "bytes_per_day": bytes});
    let per_day = |bytes: f64| Some(Budget::per_day(bytes));

    assert_eq!(of(Provider::Imap, at("imap.acme.test"), None), None);
    assert_eq!(of(Provider::Imap, at("imap.acme.test"), Some(5_000_000)), per_day(5e6));
    assert_eq!(of(Provider::Imap, at("imap.gmail.com"), None), per_day(2e9));
    assert_eq!(of(Provider::Imap, at("IMAP.GoogleMail.com."), None), per_day(2e9));
    assert_eq!(of(Provider::Imap, at("imap.gmail.com"), Some(0)), None, "who says so wants none");
    assert_eq!(of(Provider::Imap, own(7_000), Some(5_000_000)), per_day(7e3));
    assert_eq!(of(Provider::Imap, own(0), Some(5_000_000)), None);
    assert_eq!(of(Provider::Scripted, at("imap.gmail.com"), Some(5_000_000)), None);
    assert_eq!(of(Provider::Scripted, own(7_000), None), per_day(7e3));
}

#[tokio::test(start_paused = true)]
async fn a_mailbox_that_fetched_its_bytes_waits_and_says_why_and_no_other_does() {
    let calls = Calls::default();
    let (ours, other) = (
        Mailbox { settings: serde_json::json!({"bytes_per_day": 86_400}), ..mailbox() },
        Mailbox { settings: serde_json::json!({}), ..mailbox() },
    );
    let call = async |mailbox| calls.make_fetch(mailbox, Lane::Normal, Box::pin(async { Ok(()) })).await;
    for mailbox in [&ours, &other] {
        assert_eq!(call(mailbox).await, Ok(()));
        calls.spend_bytes(mailbox, 8_640 + 90).await;
    }

    let Err(ConnectorError::NotYet(wait)) = call(&ours).await else { panic!("it owes 90 bytes, at 0.9 a second") };
    assert!((99..=106).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(calls.why(&ours), "it has fetched as many bytes as it may in a day");
    assert_eq!(call(&other).await, Ok(()));
    assert_eq!(calls.make(&ours, Box::pin(async { Ok(()) })).await, Ok(()), "to look costs nothing");
    assert!(calls.owes_bytes(&ours).await && !calls.owes_bytes(&other).await);

    tokio::time::advance(wait).await;
    assert!(!calls.owes_bytes(&ours).await);
    let asked = async { Err::<(), _>(throttled(Duration::from_secs(300))) };
    assert_eq!(calls.make(&ours, Box::pin(asked)).await, Err(throttled(Duration::from_secs(300))));
    assert_eq!(calls.why(&ours), "its server asked to wait");
}

#[tokio::test(start_paused = true)]
async fn app_tenant_credential_and_mailbox_each_have_a_budget_of_calls_and_one_of_bytes() {
    let of = |mailbox: &Mailbox, secret: Option<SecretId>| Mailbox {
        id: MailboxId::new(&SystemClock),
        secret_ref: secret.map(|secret| secret.to_string()),
        ..mailbox.clone()
    };
    let (ours, stranger) = (mailbox(), mailbox());
    let secret = SecretId::new(&SystemClock);
    let colleague = of(&ours, None);
    let (own, shared) = (of(&ours, Some(secret)), of(&ours, Some(secret)));
    let one = Allowance { calls: Some(Budget::per_second(0.01)), bytes: Some(Budget::per_second(0.01)), units: None };
    // Of those who come after the first, in the order above: who has to wait.
    for (pace, waiting) in [
        (Pace { app: one, ..Pace::default() }, [true, true, true, true, true]),
        (Pace { tenant: one, ..Pace::default() }, [true, true, true, true, false]),
        (Pace { credential: one, ..Pace::default() }, [true, true, false, true, false]),
        (Pace { mailbox: one, ..Pace::default() }, [true, false, false, false, false]),
    ] {
        let calls = || Calls::new(CallSettings { pace, ..CallSettings::default() }, Arc::new(SystemDice), None);
        let (counted, weighed) = (calls(), calls());
        let those = [&ours, &ours, &colleague, &own, &shared, &stranger];
        let mut of_calls = Vec::new();
        let mut of_bytes = Vec::new();
        for mailbox in those {
            let made = counted.make(mailbox, Box::pin(async { Ok(()) })).await;
            of_calls.push(matches!(made, Err(ConnectorError::NotYet(_))));
            of_bytes.push(weighed.owes_bytes(mailbox).await);
            weighed.spend_bytes(mailbox, 10).await;
        }
        assert_eq!((of_calls[0], of_bytes[0]), (false, false), "{pace:?}");
        assert_eq!((&of_calls[1..], &of_bytes[1..]), (&waiting[..], &waiting[..]), "{pace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_answers_nobody_gets_no_more_callers_and_others_do() {
    let settings = CallSettings { most_under_way: Some(3), ..CallSettings::default() };
    let calls = Calls::new(settings, Arc::new(SystemDice), None);
    let other = Mailbox { provider: Provider::Outlook, ..mailbox() };
    let ours = mailbox();
    let mut hanging: Vec<_> =
        (0..3).map(|_| Box::pin(calls.make::<()>(&ours, Box::pin(std::future::pending())))).collect();
    for call in &mut hanging {
        assert!(futures_util::poll!(call).is_pending());
    }

    let refused = calls.make(&mailbox(), Box::pin(async { Ok(()) })).await;
    assert!(matches!(refused, Err(ConnectorError::NotYet(wait)) if wait >= Duration::from_secs(5)), "{refused:?}");
    assert_eq!(calls.make(&other, Box::pin(async { Ok(()) })).await, Ok(()));

    drop(hanging.pop());
    assert_eq!(calls.make(&mailbox(), Box::pin(async { Ok(()) })).await, Ok(()), "who gives up makes room");
}

/// Calls that do not end.
async fn hang<'a>(
    calls: &'a Calls,
    kind: Call,
    mailbox: &'a Mailbox,
    count: usize,
) -> Vec<impl Future<Output = Result<(), ConnectorError>> + Unpin + 'a> {
    let hanging = |_| Box::pin(calls.make_a(kind, mailbox, Box::pin(std::future::pending())));
    let mut hanging: Vec<_> = (0..count).map(hanging).collect();
    for call in &mut hanging {
        assert!(futures_util::poll!(call).is_pending());
    }
    hanging
}

#[tokio::test(start_paused = true)]
async fn fetches_leave_a_place_in_five_to_those_who_look_and_of_old_mail_another_to_new() {
    let settings = CallSettings { most_under_way: Some(10), ..CallSettings::default() };
    let calls = Calls::new(settings, Arc::new(SystemDice), None);
    let ours = mailbox();
    let old = hang(&calls, Call::Fetch(Lane::Low), &ours, 6).await;
    let refused = calls.make_fetch(&ours, Lane::Low, Box::pin(async { Ok(()) })).await;
    assert!(matches!(refused, Err(ConnectorError::NotYet(_))), "{refused:?}");
    let mut fetches = hang(&calls, Call::Fetch(Lane::Normal), &ours, 2).await;

    let fetch = async || calls.make_fetch(&ours, Lane::Normal, Box::pin(async { Ok(()) })).await;
    assert!(matches!(fetch().await, Err(ConnectorError::NotYet(_))), "all that may be are under way");
    let looks = hang(&calls, Call::Look, &ours, 2).await;
    assert!(matches!(calls.make(&ours, Box::pin(async { Ok(()) })).await, Err(ConnectorError::NotYet(_))));

    drop(fetches.pop());
    assert_eq!(fetch().await, Ok(()));
    drop((old, fetches, looks));
    let looks = hang(&calls, Call::Look, &ours, 10).await;
    assert!(matches!(fetch().await, Err(ConnectorError::NotYet(_))), "there are no more places than that");
    drop(looks);
    assert_eq!(hang(&calls, Call::Fetch(Lane::Normal), &ours, 8).await.len(), 8, "who was refused keeps no place");
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_takes_nothing_of_the_budgets() {
    for kind in [Call::Look, Call::Fetch(Lane::Normal)] {
        let pace = Pace::calls_per_second(10.0);
        let settings = CallSettings { pace, most_under_way: Some(2), ..CallSettings::default() };
        let calls = Calls::new(settings, Arc::new(SystemDice), None);
        let ours = mailbox();
        let hanging = hang(&calls, Call::Look, &ours, 2).await;
        for _ in 0..1000 {
            let refused = calls.make_a(kind, &ours, Box::pin(async { Ok(()) })).await;
            assert!(matches!(refused, Err(ConnectorError::NotYet(_))), "{refused:?}");
        }

        drop(hanging);
        for _ in 0..8 {
            let made = futures_util::poll!(Box::pin(calls.make_a(kind, &ours, Box::pin(async { Ok(()) }))));
            assert_eq!(made, std::task::Poll::Ready(Ok(())), "{kind:?}: at once, as two have called of ten");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_turn_of_its_tenant_keeps_no_place_from_others() {
    let slow = Allowance { calls: Some(Budget::per_second(1.0)), ..Allowance::default() };
    let pace = Pace { tenant: slow, ..Pace::default() };
    let settings = CallSettings { pace, most_under_way: Some(2), ..CallSettings::default() };
    let calls = Calls::new(settings, Arc::new(SystemDice), None);
    let (ours, other) = (mailbox(), mailbox());
    assert_eq!(calls.make(&ours, Box::pin(async { Ok(()) })).await, Ok(()));
    for kind in [Call::Look, Call::Fetch(Lane::Normal), Call::Fetch(Lane::Low)] {
        let waiting = hang(&calls, kind, &ours, 1).await;
        assert_eq!(calls.make_a(kind, &other, Box::pin(async { Ok(()) })).await, Ok(()), "{kind:?}");
        drop(waiting);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_of_no_use_any_more_is_forgotten() {
    let allowance =
        Allowance { calls: Some(Budget::per_second(1.0)), bytes: Some(Budget::per_second(1.0)), units: None };
    let pace = Pace { tenant: allowance, mailbox: allowance, ..Pace::default() };
    let calls = Calls::new(CallSettings { pace, ..CallSettings::default() }, Arc::new(SystemDice), None);
    let kept = || {
        let state = calls.inner.state();
        (state.breakers.len(), state.quiet.len(), state.buckets.len())
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
