//! Every fault on every route, without violating Microsoft's API description.

use serde_json::{Value, json};
use sim::microsoft::{MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute, can_happen};

use super::harness::{ANN, IMMUTABLE, MicrosoftHarness};

fn kinds() -> Vec<MicrosoftFaultKind> {
    let oauth = MicrosoftFaultKind::Oauth { error: "invalid_grant".to_owned(), status: 400, code: Some(70_000) };
    vec![
        MicrosoftFaultKind::Throttled { retry_after: None },
        MicrosoftFaultKind::Throttled { retry_after: Some(1) },
        MicrosoftFaultKind::Internal,
        MicrosoftFaultKind::BadGateway,
        MicrosoftFaultKind::Unavailable { retry_after: Some(1) },
        MicrosoftFaultKind::GatewayTimeout,
        MicrosoftFaultKind::BandwidthExceeded,
        MicrosoftFaultKind::Locked,
        MicrosoftFaultKind::Hang { ms: 1 },
        MicrosoftFaultKind::Cut,
        MicrosoftFaultKind::Reset,
        MicrosoftFaultKind::CutBody,
        MicrosoftFaultKind::Slow { bytes: 100_000, ms: 0 },
        MicrosoftFaultKind::Garbage,
        MicrosoftFaultKind::TruncatedJson,
        MicrosoftFaultKind::Unauthorized,
        MicrosoftFaultKind::AccessDenied,
        MicrosoftFaultKind::NotFound,
        MicrosoftFaultKind::MailboxNotEnabled,
        MicrosoftFaultKind::DeltaExpired,
        MicrosoftFaultKind::Resync { code: "resyncRequired".to_owned() },
        MicrosoftFaultKind::DeltaQuota,
        MicrosoftFaultKind::EmptyPage,
        MicrosoftFaultKind::RepeatedItems,
        MicrosoftFaultKind::MissingPart,
        MicrosoftFaultKind::ShuffledParts,
        oauth,
    ]
}

type RouteRequest = (&'static str, String, Value);

fn get(path: String) -> Option<RouteRequest> {
    Some(("GET", path, Value::Null))
}

fn mail(message: &str, rest: &str) -> Option<RouteRequest> {
    get(format!("/v1.0/me/messages/{message}{rest}"))
}

/// Returns a request that reaches the route.
fn call(route: MicrosoftRoute, message: &str) -> Option<(&'static str, String, Value)> {
    match route {
        MicrosoftRoute::Discovery => get("/common/v2.0/.well-known/openid-configuration".to_owned()),
        MicrosoftRoute::Keys => get("/common/discovery/v2.0/keys".to_owned()),
        MicrosoftRoute::Me => get("/v1.0/me".to_owned()),
        MicrosoftRoute::FoldersList => get("/v1.0/me/mailFolders".to_owned()),
        MicrosoftRoute::FoldersGet => get("/v1.0/me/mailFolders/inbox".to_owned()),
        MicrosoftRoute::FoldersChildren => get("/v1.0/me/mailFolders/msgfolderroot/childFolders".to_owned()),
        MicrosoftRoute::FoldersDelta => get("/v1.0/me/mailFolders/delta".to_owned()),
        MicrosoftRoute::MessagesList => get("/v1.0/me/messages".to_owned()),
        MicrosoftRoute::MessagesDelta => get("/v1.0/me/mailFolders/inbox/messages/delta".to_owned()),
        MicrosoftRoute::MessagesGet => mail(message, ""),
        MicrosoftRoute::MessagesValue => mail(message, "/$value"),
        MicrosoftRoute::AttachmentsList => mail(message, "/attachments"),
        MicrosoftRoute::SubscriptionsList => get("/v1.0/subscriptions".to_owned()),
        MicrosoftRoute::Batch => Some((
            "POST",
            "/v1.0/$batch".to_owned(),
            json!({"requests": [{"id": "1", "method": "GET", "url": "/me"}, {"id": "2", "method": "GET", "url": "/me"}]}),
        )),
        _ => None,
    }
}

#[tokio::test]
async fn every_fault_matches_the_api_description() {
    let harness = MicrosoftHarness::with_ann(12).await;
    let message = harness.world.truth(ANN).unwrap().messages.into_keys().next().unwrap();
    let authorization = format!("Bearer {}", harness.token());
    let fields =
        [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", IMMUTABLE)];
    let mut walked = 0;
    for route in MicrosoftRoute::ALL {
        let Some((method, path, body)) = call(route, &message) else { continue };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        for kind in kinds().into_iter().filter(|kind| can_happen(kind, route)) {
            harness.world.add_fault(MicrosoftFault { route: Some(route), ..MicrosoftFault::once(kind.clone()) });

            let answered = harness.send(method, &path, &fields, body.as_bytes()).await;

            let fired: u64 = harness.world.faults().iter().map(|fault| fault.fired).sum();
            assert_eq!(fired, 1, "{kind:?} at {route:?} comes");
            let is_cut = matches!(kind, MicrosoftFaultKind::Cut | MicrosoftFaultKind::Reset);
            assert!(!is_cut || answered.is_none(), "{kind:?} at {route:?}");
            harness.world.clear_faults();
            let well = harness.send(method, &path, &fields, body.as_bytes()).await.unwrap();
            assert_eq!(well.status, 200, "{route:?} after {kind:?}");
            walked += 1;
        }
    }
    assert!(walked > 200, "{walked}");
    harness.assert_no_violations();
}
