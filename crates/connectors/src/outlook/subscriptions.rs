//! Graph's subscriptions: what it is asked for, so that it tells us when something happens in an account. To Graph there is
//! one for an app, an account and a kind of change: whoever asks for a second is refused with a 409.

use std::time::Duration;

use domain::connector::{Answer, Watch, WatchWish};
use domain::{ConnectorError, Secret};
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::http::protocol;
use crate::microsoft::GraphPush;

/// What Graph allows for messages is 10,080 minutes; its clock may be ahead of ours.
const LASTS: Duration = Duration::from_secs(10_070 * 60);

const CHANGES: &str = "created,updated,deleted";

/// Of a directory with many accounts our app may see them all. More cannot be read while we have the right to ask.
const MOST_PAGES: usize = 20;

/// What Graph answered: that it did it, or a refusal whose meaning depends on what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 2xx, 400, 403, 404 or 409. Everything else is an error before it gets here.
    pub status: u16,
    pub body: Value,
}

/// Who makes a call for one account, with its token.
pub trait Caller: Send + Sync {
    /// The path begins after `/v1.0`.
    fn call<'a>(&'a self, method: Method, path: &'a str, body: Option<Value>) -> Answer<'a, Reply>;
}

/// Those of one account.
#[expect(missing_debug_implementations, reason = "who calls need not be shown")]
pub struct Subscriptions<'a> {
    pub caller: &'a dyn Caller,
    pub push: &'a GraphPush,
    /// The messages of the account, without a slash before: `me/messages` or `users/{address}/messages`.
    pub resource: &'a str,
    pub address: &'a str,
    pub now: Timestamp,
}

impl Subscriptions<'_> {
    /// As [`domain::Connector::watch`] wants it.
    pub async fn watch(&self, wish: &WatchWish) -> Result<Watch, ConnectorError> {
        match &wish.known {
            Some(name) => self.renew(name).await,
            None => self.begin(&wish.password).await,
        }
    }

    /// As [`domain::Connector::unwatch`] wants it. Without a name, whichever is ours.
    pub async fn unwatch(&self, name: Option<&str>) -> Result<(), ConnectorError> {
        match name {
            Some(name) => self.delete(name).await,
            None => self.delete_ours().await.map(drop),
        }
    }

    async fn renew(&self, name: &str) -> Result<Watch, ConnectorError> {
        let path = path_of(name).ok_or(ConnectorError::Gone)?;
        let reply = self.caller.call(Method::PATCH, &path, Some(json!({"expirationDateTime": self.until()}))).await?;
        match reply.status {
            200..300 => {
                // It was begun when we were somewhere else: to go on there is of no use.
                let told = reply.body["notificationUrl"].as_str();
                if told.is_some_and(|told| told != self.push.notification_url) {
                    self.delete(name).await?;
                    return Err(ConnectorError::Gone);
                }
                Ok(Watch { name: Some(name.to_owned()), ..watch(&reply.body)? })
            }
            404 => Err(ConnectorError::Gone),
            _ => Err(refusal(&reply)),
        }
    }

    /// One that is there without our knowing is ended first: nobody knows what it says.
    async fn begin(&self, password: &Secret<String>) -> Result<Watch, ConnectorError> {
        let mut reply = self.create(password).await?;
        if reply.status == 409 {
            if self.delete_ours().await? == 0 {
                return Err(ConnectorError::Operator(
                    "this app has a subscription to the account already, which is sent elsewhere; every Mailroom needs an app registration of its own".to_owned(),
                ));
            }
            reply = self.create(password).await?;
        }
        match reply.status {
            200..300 => watch(&reply.body),
            _ => Err(refusal(&reply)),
        }
    }

    async fn create(&self, password: &Secret<String>) -> Result<Reply, ConnectorError> {
        let wanted = json!({
            "changeType": CHANGES,
            "notificationUrl": self.push.notification_url,
            "lifecycleNotificationUrl": self.push.lifecycle_url,
            "resource": self.resource,
            "expirationDateTime": self.until(),
            "clientState": password.expose(),
            "latestSupportedTlsVersion": "v1_2",
        });
        self.caller.call(Method::POST, "/subscriptions", Some(wanted)).await
    }

    async fn delete(&self, name: &str) -> Result<(), ConnectorError> {
        let Some(path) = path_of(name) else { return Ok(()) };
        let reply = self.caller.call(Method::DELETE, &path, None).await?;
        match reply.status {
            // Whoever has ended it: it has.
            200..300 | 404 => Ok(()),
            _ => Err(refusal(&reply)),
        }
    }

    /// How many there were.
    async fn delete_ours(&self) -> Result<usize, ConnectorError> {
        let ours = self.list_ours().await?;
        for name in &ours {
            self.delete(name).await?;
        }
        Ok(ours.len())
    }

    /// Of this account, that are sent to us. Our app may see those of others too.
    async fn list_ours(&self) -> Result<Vec<String>, ConnectorError> {
        let is_ours = |item: &&Value| self.is_ours(item);
        let (mut ours, mut path) = (Vec::new(), "/subscriptions".to_owned());
        for _ in 0..MOST_PAGES {
            let reply = self.caller.call(Method::GET, &path, None).await?;
            if !(200..300).contains(&reply.status) {
                return Err(refusal(&reply));
            }
            let items =
                reply.body["value"].as_array().ok_or_else(|| protocol("a list of subscriptions that is none"))?;
            ours.extend(items.iter().filter(is_ours).filter_map(|item| item["id"].as_str().map(str::to_owned)));
            // Only where it goes on is taken from a link: who is called stays the same.
            match reply.body["@odata.nextLink"].as_str().and_then(|link| link.split_once("/v1.0/")) {
                Some((_, rest)) => path = format!("/{rest}"),
                None => return Ok(ours),
            }
        }
        match ours.is_empty() {
            true => {
                Err(ConnectorError::Unavailable("there are too many subscriptions to find ours in time".to_owned()))
            }
            false => Ok(ours),
        }
    }

    /// An account may have been subscribed to by its owner's consent or by a directory's, under a name for each. `me` is
    /// whoever has the token, so to our app in its own right it says nothing.
    fn is_ours(&self, item: &Value) -> bool {
        let resource = item["resource"].as_str().unwrap_or_default().trim_start_matches('/');
        let by_address = format!("users/{}/messages", self.address);
        let is_the_accounts = [self.resource, &by_address].iter().any(|known| resource.eq_ignore_ascii_case(known));
        is_the_accounts && item["notificationUrl"] == *self.push.notification_url
    }

    fn until(&self) -> String {
        (self.now + LASTS).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// An id that Graph would not give is not put into an address.
fn path_of(name: &str) -> Option<String> {
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_plain.then(|| format!("/subscriptions/{name}"))
}

fn watch(body: &Value) -> Result<Watch, ConnectorError> {
    let expires_at = body["expirationDateTime"].as_str().and_then(|text| text.parse().ok());
    let name = body["id"].as_str().filter(|name| path_of(name).is_some()).map(str::to_owned);
    match (expires_at, name) {
        (Some(expires_at), Some(name)) => Ok(Watch { expires_at, name: Some(name) }),
        _ => Err(protocol("a subscription that is none")),
    }
}

/// Nothing of what it says but the status and its word for it.
fn refusal(reply: &Reply) -> ConnectorError {
    let word = reply.body["error"]["code"].as_str().unwrap_or_default();
    let word: String = word.chars().filter(char::is_ascii_alphanumeric).take(60).collect();
    match (reply.status, &*word) {
        // Its handshake with us came to nothing.
        (400, "ValidationError") => ConnectorError::Operator(format!(
            "Graph does not get an answer at providers.microsoft.notification_url ({word})"
        )),
        (400, "InvalidRequest") => ConnectorError::Operator(format!(
            "Graph does not take the subscription; is providers.microsoft.notification_url reached from outside, with https? ({word})"
        )),
        (403, _) => ConnectorError::Operator(format!("our app may not subscribe to the account ({word})")),
        (status, _) => protocol(&format!("a subscription was refused with status {status} ({word})")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    const RESOURCE: &str = "users/u1/messages";
    const ADDRESS: &str = "u1";

    /// Graph as far as it knows of subscriptions: by id, and each with what it was asked for.
    #[derive(Default)]
    struct Graph {
        all: Mutex<BTreeMap<String, Value>>,
        asked: Mutex<Vec<String>>,
        refuses: Mutex<Option<Reply>>,
    }

    impl Graph {
        fn add(&self, id: &str, url: &str, resource: &str) {
            let is = json!({"id": id, "notificationUrl": url, "resource": resource, "changeType": CHANGES});
            self.all.lock().unwrap().insert(id.to_owned(), is);
        }

        fn ids(&self) -> Vec<String> {
            self.all.lock().unwrap().keys().cloned().collect()
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut self.asked.lock().unwrap())
        }

        fn answer(&self, method: &Method, path: &str, body: Option<Value>) -> Reply {
            let refused =
                |status, code: &str| Reply { status, body: json!({"error": {"code": code, "message": "no"}}) };
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
                    let mut said = json!({"value": all.values().skip(page).take(1).collect::<Vec<_>>()});
                    if next < all.len() {
                        said["@odata.nextLink"] = json!(format!("https://evil.example/v1.0/subscriptions?skip={next}"));
                    }
                    Reply { status: 200, body: said }
                }
                ("POST", "/subscriptions") => {
                    let mut body = body.unwrap();
                    let is_same =
                        |other: &Value| other["resource"].as_str().unwrap().trim_start_matches('/') == body["resource"];
                    if all.values().any(is_same) {
                        return refused(409, "Conflict");
                    }
                    let id = format!("new-{}", all.len());
                    body["id"] = json!(id);
                    all.insert(id, body.clone());
                    Reply { status: 201, body }
                }
                ("PATCH", _) => match all.get_mut(id) {
                    Some(there) => {
                        there["expirationDateTime"] = body.unwrap()["expirationDateTime"].clone();
                        Reply { status: 200, body: there.clone() }
                    }
                    None => refused(404, "ResourceNotFound"),
                },
                ("DELETE", _) => match all.remove(id) {
                    Some(_) => Reply { status: 204, body: Value::Null },
                    None => refused(404, "ResourceNotFound"),
                },
                other => panic!("{other:?}"),
            }
        }
    }

    impl Caller for Graph {
        fn call<'a>(&'a self, method: Method, path: &'a str, body: Option<Value>) -> Answer<'a, Reply> {
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

    fn subscriptions<'a>(graph: &'a Graph, push: &'a GraphPush) -> Subscriptions<'a> {
        Subscriptions { caller: graph, push, resource: RESOURCE, address: ADDRESS, now: now() }
    }

    fn wish(known: Option<&str>) -> WatchWish {
        WatchWish { known: known.map(str::to_owned), password: Secret::new("only-graph-knows".to_owned()) }
    }

    #[tokio::test]
    async fn one_is_begun_renewed_and_ended() {
        let (graph, push) = (Graph::default(), push());
        let ours = subscriptions(&graph, &push);
        let begun = ours.watch(&wish(None)).await.unwrap();
        assert_eq!(begun.name.as_deref(), Some("new-0"));
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
        let renewed = later.watch(&wish(Some("new-0"))).await.unwrap();
        assert!(renewed.name == begun.name && renewed.expires_at > begun.expires_at);
        later.unwatch(Some("new-0")).await.unwrap();
        assert_eq!(graph.ids(), Vec::<String>::new());
        later.unwatch(Some("new-0")).await.unwrap();
        assert_eq!(later.watch(&wish(Some("new-0"))).await, Err(ConnectorError::Gone), "nothing is begun in its place");
        assert_eq!(graph.ids(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn one_of_which_nobody_knew_gives_way_and_those_of_others_stay() {
        let (graph, push) = (Graph::default(), push());
        let ours = subscriptions(&graph, &push);
        graph.add("a-lost", &push.notification_url, "/users/u1/messages");
        graph.add("b-other", &push.notification_url, "users/u2/messages");
        graph.add("c-other", "https://elsewhere.example/", "users/u3/messages");
        let begun = ours.watch(&wish(None)).await.unwrap();
        assert_eq!(graph.ids(), ["b-other", "c-other", &begun.name.clone().unwrap()]);
        assert!(graph.asked().iter().all(|asked| !asked.contains("evil")), "links do not lead elsewhere");

        ours.unwatch(None).await.unwrap();
        assert_eq!(graph.ids(), ["b-other", "c-other"]);
        graph.add("d-other", "https://elsewhere.example/", RESOURCE);
        let refused = ours.watch(&wish(None)).await.unwrap_err();
        assert!(matches!(&refused, ConnectorError::Operator(why) if why.contains("elsewhere")), "{refused}");
        assert_eq!(graph.ids(), ["b-other", "c-other", "d-other"], "it is not ours to end");
    }

    #[test]
    fn ours_are_those_that_are_surely_of_the_account() {
        let (graph, push) = (Graph::default(), push());
        let by_app = subscriptions(&graph, &push);
        let by_owner = Subscriptions { resource: "me/messages", ..subscriptions(&graph, &push) };
        let is = |who: &Subscriptions<'_>, resource: &str| {
            who.is_ours(&json!({"resource": resource, "notificationUrl": push.notification_url}))
        };
        for resource in ["users/u1/messages", "/users/u1/messages", "/Users/U1/Messages"] {
            assert!(is(&by_app, resource) && is(&by_owner, resource), "{resource}");
        }
        for resource in ["me/messages", "/Me/messages"] {
            assert!(is(&by_owner, resource) && !is(&by_app, resource), "{resource}: it may be anybody");
        }
        for resource in ["users/u2/messages", "users/u1/events", "me/events", "", "/"] {
            assert!(!is(&by_app, resource) && !is(&by_owner, resource), "{resource}");
        }
        assert!(!by_app.is_ours(&json!({"resource": RESOURCE, "notificationUrl": "https://elsewhere.example/"})));
    }

    #[tokio::test]
    async fn among_too_many_to_read_it_is_not_known_whether_ours_is() {
        let (graph, push) = (Graph::default(), push());
        for n in 0..MOST_PAGES {
            graph.add(&format!("a-{n:02}"), &push.notification_url, &format!("users/other{n}/messages"));
        }
        graph.add("b-ours", &push.notification_url, RESOURCE);
        let refused = subscriptions(&graph, &push).watch(&wish(None)).await.unwrap_err();
        assert!(matches!(refused, ConnectorError::Unavailable(_)), "{refused}");
        assert_eq!(graph.ids().len(), MOST_PAGES + 1);
    }

    #[tokio::test]
    async fn one_that_is_sent_where_we_were_is_ended() {
        let (graph, push) = (Graph::default(), push());
        graph.add("a", "https://before.example/v1/hooks/graph", RESOURCE);
        assert_eq!(subscriptions(&graph, &push).watch(&wish(Some("a"))).await, Err(ConnectorError::Gone));
        assert_eq!(graph.ids(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn refusals_say_what_is_to_be_done_and_nothing_of_the_answer() {
        let (graph, push) = (Graph::default(), push());
        let ours = subscriptions(&graph, &push);
        for (status, code, is_ours) in [
            (400, "ValidationError", true),
            (400, "InvalidRequest", true),
            (403, "ErrorAccessDenied", true),
            (400, "something <else> secret@acme.test", false),
            (404, "", false),
        ] {
            let body = json!({"error": {"code": code, "message": "private"}});
            *graph.refuses.lock().unwrap() = Some(Reply { status, body });
            let refused = ours.watch(&wish(None)).await.unwrap_err();
            assert_eq!(matches!(refused, ConnectorError::Operator(_)), is_ours, "{refused}");
            let said = refused.to_string();
            assert!(!said.contains("private") && !said.contains('@') && !said.contains('<'), "{said}");
        }
        for name in ["", "../me", "a/b", "a?b", "é"] {
            graph.asked();
            assert_eq!(ours.watch(&wish(Some(name))).await, Err(ConnectorError::Gone));
            ours.unwatch(Some(name)).await.unwrap();
            assert_eq!(graph.asked(), Vec::<String>::new(), "{name}");
        }
    }
}
