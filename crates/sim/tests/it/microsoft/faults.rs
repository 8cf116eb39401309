//! Every fault at every call, and nothing of it outside of what Microsoft's description allows.

use serde_json::{Value, json};
use sim::microsoft::{Fault, Kind, Route, can_happen};

use super::place::{ANN, IMMUTABLE, Place};

fn kinds() -> Vec<Kind> {
    let oauth = Kind::Oauth { error: "invalid_grant".to_owned(), status: 400, code: Some(70_000) };
    vec![
        Kind::Throttled { retry_after: None },
        Kind::Throttled { retry_after: Some(1) },
        Kind::Internal,
        Kind::BadGateway,
        Kind::Unavailable { retry_after: Some(1) },
        Kind::GatewayTimeout,
        Kind::BandwidthExceeded,
        Kind::Locked,
        Kind::Hang { ms: 1 },
        Kind::Cut,
        Kind::Reset,
        Kind::CutBody,
        Kind::Slow { bytes: 100_000, ms: 0 },
        Kind::Garbage,
        Kind::TruncatedJson,
        Kind::Unauthorized,
        Kind::AccessDenied,
        Kind::NotFound,
        Kind::MailboxNotEnabled,
        Kind::DeltaExpired,
        Kind::Resync { code: "resyncRequired".to_owned() },
        Kind::DeltaQuota,
        Kind::EmptyPage,
        Kind::RepeatedItems,
        Kind::MissingPart,
        Kind::ShuffledParts,
        oauth,
    ]
}

/// A call that reaches the route.
fn call(route: Route, message: &str) -> Option<(&'static str, String, Value)> {
    let get = |path: String| Some(("GET", path, Value::Null));
    let mail = |rest: &str| get(format!("/v1.0/me/messages/{message}{rest}"));
    match route {
        Route::Discovery => get("/common/v2.0/.well-known/openid-configuration".to_owned()),
        Route::Keys => get("/common/discovery/v2.0/keys".to_owned()),
        Route::Me => get("/v1.0/me".to_owned()),
        Route::FoldersList => get("/v1.0/me/mailFolders".to_owned()),
        Route::FoldersGet => get("/v1.0/me/mailFolders/inbox".to_owned()),
        Route::FoldersChildren => get("/v1.0/me/mailFolders/msgfolderroot/childFolders".to_owned()),
        Route::FoldersDelta => get("/v1.0/me/mailFolders/delta".to_owned()),
        Route::MessagesList => get("/v1.0/me/messages".to_owned()),
        Route::MessagesDelta => get("/v1.0/me/mailFolders/inbox/messages/delta".to_owned()),
        Route::MessagesGet => mail(""),
        Route::MessagesValue => mail("/$value"),
        Route::AttachmentsList => mail("/attachments"),
        Route::SubscriptionsList => get("/v1.0/subscriptions".to_owned()),
        Route::Batch => {
            let part = |id: &str| json!({"id": id, "method": "GET", "url": "/me"});
            Some(("POST", "/v1.0/$batch".to_owned(), json!({"requests": [part("1"), part("2")]})))
        }
        _ => None,
    }
}

#[tokio::test]
async fn whatever_goes_wrong_is_told_as_microsoft_tells_it() {
    let place = Place::with_ann(12).await;
    let message = place.world.truth(ANN).unwrap().messages.into_keys().next().unwrap();
    let authorization = format!("Bearer {}", place.token());
    let fields =
        [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", IMMUTABLE)];
    let mut walked = 0;
    for route in Route::ALL {
        let Some((method, path, body)) = call(route, &message) else { continue };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        for kind in kinds().into_iter().filter(|kind| can_happen(kind, route)) {
            place.world.add_fault(Fault { route: Some(route), ..Fault::once(kind.clone()) });

            let answered = place.send(method, &path, &fields, body.as_bytes()).await;

            let fired: u64 = place.world.faults().iter().map(|fault| fault.fired).sum();
            assert_eq!(fired, 1, "{kind:?} at {route:?} comes");
            let is_cut = matches!(kind, Kind::Cut | Kind::Reset);
            assert!(!is_cut || answered.is_none(), "{kind:?} at {route:?}");
            place.world.clear_faults();
            let well = place.send(method, &path, &fields, body.as_bytes()).await.unwrap();
            assert_eq!(well.status, 200, "{route:?} after {kind:?}");
            walked += 1;
        }
    }
    assert!(walked > 200, "{walked}");
    place.assert_no_violations();
}
