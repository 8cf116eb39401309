//! Graph's change notification subscriptions of an account: create, renew, delete. Graph allows one subscription per app,
//! account and change type, and answers a request for a second one with 409.

use std::time::Duration;

use domain::connector::{ConnectorFuture, Watch, WatchRequest};
use domain::{ConnectorError, Secret};
use jiff::Timestamp;
use outbound::http::Method;
use serde_json::{Value, json};

use super::app_settings::GraphPush;
use crate::http::protocol;

/// Graph allows 10,080 minutes for messages; its clock may be ahead of ours.
const SUBSCRIPTION_LIFETIME: Duration = Duration::from_secs(10_070 * 60);

const CHANGE_TYPES: &str = "created,updated,deleted";

/// Pages of a subscription listing that are read at most: an app may see those of a whole directory, and more pages would
/// take longer than the call may.
const MAX_LIST_PAGES: usize = 20;

/// Graph's response: success, or an error whose meaning depends on the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphReply {
    /// 2xx, 400, 403, 404 or 409. Everything else is an error before it gets here.
    pub status: u16,
    pub body: Value,
}

/// Makes authenticated Graph calls for one account.
pub trait GraphCaller: Send + Sync {
    /// The path begins after `/v1.0`.
    fn call<'a>(&'a self, method: Method, path: &'a str, body: Option<Value>) -> ConnectorFuture<'a, GraphReply>;
}

/// The subscriptions of one account.
#[expect(missing_debug_implementations, reason = "the caller has no Debug")]
pub struct Subscriptions<'a> {
    pub caller: &'a dyn GraphCaller,
    pub push: &'a GraphPush,
    /// The messages of the account, without a leading slash: `me/messages` or `users/{address}/messages`.
    pub resource: &'a str,
    pub address: &'a str,
    pub now: Timestamp,
}

impl Subscriptions<'_> {
    /// Renews the known subscription or creates one; see [`domain::Connector::watch`].
    pub async fn watch(&self, request: &WatchRequest) -> Result<Watch, ConnectorError> {
        match &request.subscription_id {
            Some(name) => self.renew(name).await,
            None => self.create_or_replace(&request.client_state).await,
        }
    }

    /// Deletes the subscription of this name, or all of ours; see [`domain::Connector::unwatch`].
    pub async fn unwatch(&self, name: Option<&str>) -> Result<(), ConnectorError> {
        match name {
            Some(name) => self.delete(name).await,
            None => self.delete_ours().await.map(drop),
        }
    }

    async fn renew(&self, name: &str) -> Result<Watch, ConnectorError> {
        let path = subscription_path(name).ok_or(ConnectorError::Gone)?;
        let reply =
            self.caller.call(Method::PATCH, &path, Some(json!({"expirationDateTime": self.expiration()}))).await?;
        match reply.status {
            200..300 => {
                // It was created for a former notification URL of ours, so renewing it is of no use.
                let url = reply.body["notificationUrl"].as_str();
                if url.is_some_and(|url| url != self.push.notification_url) {
                    self.delete(name).await?;
                    return Err(ConnectorError::Gone);
                }
                Ok(Watch { subscription_id: Some(name.to_owned()), ..watch(&reply.body)? })
            }
            404 => Err(ConnectorError::Gone),
            _ => Err(rejection_error(&reply)),
        }
    }

    /// Creates a subscription. An existing one that we do not know is deleted first, because we lack its client state.
    async fn create_or_replace(&self, client_state: &Secret<String>) -> Result<Watch, ConnectorError> {
        let mut reply = self.create(client_state).await?;
        if reply.status == 409 {
            if self.delete_ours().await? == 0 {
                return Err(ConnectorError::AppRejected(
                    "this app already has a subscription to the account, with notifications sent elsewhere; every Mailroom needs an app registration of its own".to_owned(),
                ));
            }
            reply = self.create(client_state).await?;
        }
        match reply.status {
            200..300 => watch(&reply.body),
            _ => Err(rejection_error(&reply)),
        }
    }

    async fn create(&self, client_state: &Secret<String>) -> Result<GraphReply, ConnectorError> {
        let subscription = json!({
            "changeType": CHANGE_TYPES,
            "notificationUrl": self.push.notification_url,
            "lifecycleNotificationUrl": self.push.lifecycle_url,
            "resource": self.resource,
            "expirationDateTime": self.expiration(),
            "clientState": client_state.expose(),
            "latestSupportedTlsVersion": "v1_2",
        });
        self.caller.call(Method::POST, "/subscriptions", Some(subscription)).await
    }

    async fn delete(&self, name: &str) -> Result<(), ConnectorError> {
        let Some(path) = subscription_path(name) else { return Ok(()) };
        let reply = self.caller.call(Method::DELETE, &path, None).await?;
        match reply.status {
            // 404: it has ended already.
            200..300 | 404 => Ok(()),
            _ => Err(rejection_error(&reply)),
        }
    }

    /// Deletes our subscriptions and returns how many there were.
    async fn delete_ours(&self) -> Result<usize, ConnectorError> {
        let ours = self.list_ours().await?;
        for name in &ours {
            self.delete(name).await?;
        }
        Ok(ours.len())
    }

    /// Lists the account's subscriptions whose notifications are sent to us. Our app may see those of other accounts too.
    async fn list_ours(&self) -> Result<Vec<String>, ConnectorError> {
        let (mut ours, mut path) = (Vec::new(), "/subscriptions".to_owned());
        for _ in 0..MAX_LIST_PAGES {
            let reply = self.caller.call(Method::GET, &path, None).await?;
            if !(200..300).contains(&reply.status) {
                return Err(rejection_error(&reply));
            }
            let items =
                reply.body["value"].as_array().ok_or_else(|| protocol("a list of subscriptions has no value"))?;
            let items = items.iter().filter(|item| self.is_ours(item));
            ours.extend(items.filter_map(|item| item["id"].as_str().map(str::to_owned)));
            // Only the path is taken from the link, so that it cannot lead to another server.
            match reply.body["@odata.nextLink"].as_str().and_then(|link| link.split_once("/v1.0/")) {
                Some((_, rest)) => path = format!("/{rest}"),
                None => return Ok(ours),
            }
        }
        if ours.is_empty() {
            return Err(ConnectorError::Unavailable(
                "there are too many subscriptions to find ours in time".to_owned(),
            ));
        }
        Ok(ours)
    }

    /// Returns whether a subscription is for this account and sent to us. An account may be subscribed to by its
    /// owner's consent or by the directory's, with another resource for each. `me` is the owner of the token, so with
    /// the app's own token it does not identify an account.
    fn is_ours(&self, item: &Value) -> bool {
        let resource = item["resource"].as_str().unwrap_or_default().trim_start_matches('/');
        let by_address = format!("users/{}/messages", self.address);
        let is_of_account = [self.resource, &by_address].iter().any(|known| resource.eq_ignore_ascii_case(known));
        is_of_account && item["notificationUrl"] == *self.push.notification_url
    }

    fn expiration(&self) -> String {
        (self.now + SUBSCRIPTION_LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// Returns the path of a subscription, or `None` if its id is not one that Graph would give.
fn subscription_path(name: &str) -> Option<String> {
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_plain.then(|| format!("/subscriptions/{name}"))
}

fn watch(body: &Value) -> Result<Watch, ConnectorError> {
    let expires_at = body["expirationDateTime"].as_str().and_then(|text| text.parse().ok());
    let name = body["id"].as_str().filter(|name| subscription_path(name).is_some()).map(str::to_owned);
    match (expires_at, name) {
        (Some(expires_at), Some(name)) => Ok(Watch { expires_at, subscription_id: Some(name) }),
        _ => Err(protocol("a subscription has no id or no expiration")),
    }
}

/// Returns the error that an error response means. Only its status and code are repeated.
fn rejection_error(reply: &GraphReply) -> ConnectorError {
    let code = reply.body["error"]["code"].as_str().unwrap_or_default();
    let code: String = code.chars().filter(char::is_ascii_alphanumeric).take(60).collect();
    match (reply.status, &*code) {
        // Graph's validation request to our endpoint failed.
        (400, "ValidationError") => ConnectorError::AppRejected(format!(
            "Graph does not get an answer at providers.microsoft.notification_url ({code})"
        )),
        (400, "InvalidRequest") => ConnectorError::AppRejected(format!(
            "Graph rejects the subscription; check that providers.microsoft.notification_url is an https URL that is reachable from outside ({code})"
        )),
        (403, _) => ConnectorError::AppRejected(format!("the app is not allowed to subscribe to the account ({code})")),
        (status, _) => protocol(&format!("the subscription was rejected with status {status} ({code})")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    const RESOURCE: &str = "users/u1/messages";
    const ADDRESS: &str = "u1";

    /// Graph's subscriptions by id, with the requests that it has received.
    #[derive(Default)]
    struct FakeGraph {
        all: Mutex<BTreeMap<String, Value>>,
        asked: Mutex<Vec<String>>,
        refuses: Mutex<Option<GraphReply>>,
    }

    impl FakeGraph {
        fn add(&self, id: &str, url: &str, resource: &str) {
            let is = json!({"id": id, "notificationUrl": url, "resource": resource, "changeType": CHANGE_TYPES});
            self.all.lock().unwrap().insert(id.to_owned(), is);
        }

        fn ids(&self) -> Vec<String> {
            self.all.lock().unwrap().keys().cloned().collect()
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut self.asked.lock().unwrap())
        }

        fn answer(&self, method: &Method, path: &str, body: Option<Value>) -> GraphReply {
            if let Some(reply) = self.refuses.lock().unwrap().take() {
                return reply;
            }
            let mut all = self.all.lock().unwrap();
            let (path, id) = (path.split('?').next().unwrap(), path.rsplit('/').next().unwrap());
            match (method.as_str(), path) {
                ("GET", _) => {
                    // One at a time, so that there are pages.
                    let (page, next) = match id.split_once("skip=") {
                        Some((_, skip)) => (skip.parse::<usize>().unwrap(), skip.parse::<usize>().unwrap() + 1),
                        None => (0, 1),
                    };
                    let mut body = json!({"value": all.values().skip(page).take(1).collect::<Vec<_>>()});
                    if next < all.len() {
                        body["@odata.nextLink"] = json!(format!("https://evil.example/v1.0/subscriptions?skip={next}"));
                    }
                    GraphReply { status: 200, body }
                }
                ("POST", "/subscriptions") => {
                    let mut body = body.unwrap();
                    let mut resources = all.values().map(|other| other["resource"].as_str().unwrap());
                    if resources.any(|resource| resource.trim_start_matches('/') == body["resource"]) {
                        return rejection(409, "Conflict");
                    }
                    let id = format!("new-{}", all.len());
                    body["id"] = json!(id);
                    all.insert(id, body.clone());
                    GraphReply { status: 201, body }
                }
                ("PATCH", _) => match all.get_mut(id) {
                    Some(there) => {
                        there["expirationDateTime"] = body.unwrap()["expirationDateTime"].clone();
                        GraphReply { status: 200, body: there.clone() }
                    }
                    None => rejection(404, "ResourceNotFound"),
                },
                ("DELETE", _) => match all.remove(id) {
                    Some(_) => GraphReply { status: 204, body: Value::Null },
                    None => rejection(404, "ResourceNotFound"),
                },
                other => panic!("{other:?}"),
            }
        }
    }

    fn rejection(status: u16, code: &str) -> GraphReply {
        GraphReply { status, body: json!({"error": {"code": code, "message": "no"}}) }
    }

    impl GraphCaller for FakeGraph {
        fn call<'a>(&'a self, method: Method, path: &'a str, body: Option<Value>) -> ConnectorFuture<'a, GraphReply> {
            self.asked.lock().unwrap().push(format!("{method} {path}"));
            Box::pin(async move { Ok(self.answer(&method, path, body)) })
        }
    }

    fn push() -> GraphPush {
        GraphPush {
            notification_url: "https://us.example/v1/hooks/graph".into(),
            lifecycle_url: "https://us.example/v1/hooks/graph/lifecycle".into(),
        }
    }

    fn now() -> Timestamp {
        "2026-03-01T10:00:00Z".parse().unwrap()
    }

    fn subscriptions<'a>(graph: &'a FakeGraph, push: &'a GraphPush) -> Subscriptions<'a> {
        Subscriptions { caller: graph, push, resource: RESOURCE, address: ADDRESS, now: now() }
    }

    fn request(known: Option<&str>) -> WatchRequest {
        WatchRequest {
            subscription_id: known.map(str::to_owned),
            client_state: Secret::new("only-graph-knows".to_owned()),
        }
    }

    #[tokio::test]
    async fn subscription_is_created_renewed_and_deleted() {
        let (graph, push) = (FakeGraph::default(), push());
        let ours = subscriptions(&graph, &push);
        let begun = ours.watch(&request(None)).await.unwrap();
        assert_eq!(begun.subscription_id.as_deref(), Some("new-0"));
        let lasts = begun.expires_at.duration_since(now());
        assert!(lasts.as_mins() < 10_080 && lasts.as_mins() > 10_000, "{lasts}");
        let there = graph.all.lock().unwrap()["new-0"].clone();
        for (field, value) in [
            ("changeType", "created,updated,deleted"),
            ("clientState", "only-graph-knows"),
            ("resource", RESOURCE),
            ("notificationUrl", "https://us.example/v1/hooks/graph"),
            ("lifecycleNotificationUrl", "https://us.example/v1/hooks/graph/lifecycle"),
        ] {
            assert_eq!(there[field], value);
        }

        let later = Subscriptions { now: now() + Duration::from_secs(86_400), ..subscriptions(&graph, &push) };
        let renewed = later.watch(&request(Some("new-0"))).await.unwrap();
        assert!(renewed.subscription_id == begun.subscription_id && renewed.expires_at > begun.expires_at);
        later.unwatch(Some("new-0")).await.unwrap();
        assert_eq!(graph.ids(), Vec::<String>::new());
        later.unwatch(Some("new-0")).await.unwrap();
        assert_eq!(
            later.watch(&request(Some("new-0"))).await,
            Err(ConnectorError::Gone),
            "nothing is begun in its place"
        );
        assert_eq!(graph.ids(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn unknown_subscription_of_ours_is_replaced() {
        let (graph, push) = (FakeGraph::default(), push());
        let ours = subscriptions(&graph, &push);
        graph.add("a-lost", &push.notification_url, "/users/u1/messages");
        graph.add("b-other", &push.notification_url, "users/u2/messages");
        graph.add("c-other", "https://elsewhere.example/", "users/u3/messages");
        let begun = ours.watch(&request(None)).await.unwrap();
        assert_eq!(graph.ids(), ["b-other", "c-other", &begun.subscription_id.clone().unwrap()]);
        assert!(graph.asked().iter().all(|asked| !asked.contains("evil")), "links do not lead elsewhere");

        ours.unwatch(None).await.unwrap();
        assert_eq!(graph.ids(), ["b-other", "c-other"]);
        graph.add("d-other", "https://elsewhere.example/", RESOURCE);
        let refused = ours.watch(&request(None)).await.unwrap_err();
        assert!(matches!(&refused, ConnectorError::AppRejected(why) if why.contains("elsewhere")), "{refused}");
        assert_eq!(graph.ids(), ["b-other", "c-other", "d-other"], "it is not ours to end");
    }

    #[test]
    fn subscription_is_ours_only_if_it_names_the_account() {
        let (graph, push) = (FakeGraph::default(), push());
        let by_app = subscriptions(&graph, &push);
        let by_owner = Subscriptions { resource: "me/messages", ..subscriptions(&graph, &push) };
        for (resource, expected) in [
            ("users/u1/messages", (true, true)),
            ("/users/u1/messages", (true, true)),
            ("/Users/U1/Messages", (true, true)),
            // With the app's own token, `me` may be anybody.
            ("me/messages", (false, true)),
            ("/Me/messages", (false, true)),
            ("users/u2/messages", (false, false)),
            ("users/u1/events", (false, false)),
            ("me/events", (false, false)),
            ("", (false, false)),
            ("/", (false, false)),
        ] {
            let item = json!({"resource": resource, "notificationUrl": push.notification_url});
            assert_eq!((by_app.is_ours(&item), by_owner.is_ours(&item)), expected, "{resource}");
        }
        assert!(!by_app.is_ours(&json!({"resource": RESOURCE, "notificationUrl": "https://elsewhere.example/"})));
    }

    #[tokio::test]
    async fn too_many_subscriptions_to_list_is_an_error() {
        let (graph, push) = (FakeGraph::default(), push());
        for n in 0..MAX_LIST_PAGES {
            graph.add(&format!("a-{n:02}"), &push.notification_url, &format!("users/other{n}/messages"));
        }
        graph.add("b-ours", &push.notification_url, RESOURCE);
        let refused = subscriptions(&graph, &push).watch(&request(None)).await.unwrap_err();
        assert!(matches!(refused, ConnectorError::Unavailable(_)), "{refused}");
        assert_eq!(graph.ids().len(), MAX_LIST_PAGES + 1);
    }

    #[tokio::test]
    async fn subscription_for_a_former_url_is_deleted() {
        let (graph, push) = (FakeGraph::default(), push());
        graph.add("a", "https://before.example/v1/hooks/graph", RESOURCE);
        assert_eq!(subscriptions(&graph, &push).watch(&request(Some("a"))).await, Err(ConnectorError::Gone));
        assert_eq!(graph.ids(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn errors_have_no_text_of_the_response() {
        let (graph, push) = (FakeGraph::default(), push());
        let ours = subscriptions(&graph, &push);
        for (status, code, is_ours) in [
            (400, "ValidationError", true),
            (400, "InvalidRequest", true),
            (403, "ErrorAccessDenied", true),
            (400, "something <else> secret@acme.test", false),
            (404, "", false),
        ] {
            let body = json!({"error": {"code": code, "message": "private"}});
            *graph.refuses.lock().unwrap() = Some(GraphReply { status, body });
            let refused = ours.watch(&request(None)).await.unwrap_err();
            assert_eq!(matches!(refused, ConnectorError::AppRejected(_)), is_ours, "{refused}");
            let said = refused.to_string();
            assert!(!said.contains("private") && !said.contains('@') && !said.contains('<'), "{said}");
        }
        for name in ["", "../me", "a/b", "a?b", "é"] {
            graph.asked();
            assert_eq!(ours.watch(&request(Some(name))).await, Err(ConnectorError::Gone));
            ours.unwatch(Some(name)).await.unwrap();
            assert_eq!(graph.asked(), Vec::<String>::new(), "{name}");
        }
    }
}
