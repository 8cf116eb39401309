//! Events of a server: what has changed, over a response that does not end (RFC 8620, section 7.3).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::connector::ConnectorFuture;
use domain::{ConnectorError, MailboxId};
use outbound::http::StatusCode;
use outbound::http::header::ACCEPT;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::api::{JmapCall, JmapClient};
use super::error_mapping::error_of_status;
use crate::http::{HttpTimeouts, ResponseBody, protocol, unavailable};

/// What we ask for events of.
const TYPES: &str = "Email,Mailbox";

/// How often the server says that it is still there: the most that many servers allow.
const PING_SECONDS: u64 = 60;

/// Events are small: an account, and a state for each type.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Mailboxes whose states are remembered.
const MAX_REMEMBERED: usize = 20_000;

/// A silent connection is given up after some missed pings; how long one listens is up to the caller.
pub const LISTENER_TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(10),
    read: Duration::from_secs(4 * PING_SECONDS),
    response: Duration::from_secs(30),
    stream: Duration::from_secs(3_600),
};

/// States by type.
type TypeStates = BTreeMap<String, String>;

/// The states that were heard of last, so that nothing is missed between two connections.
#[derive(Debug, Default)]
pub struct HeardStates(Mutex<HashMap<MailboxId, TypeStates>>);

impl HeardStates {
    /// Remembers these states, and returns whether any of them differs from what it was.
    fn update(&self, mailbox: MailboxId, now: TypeStates) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_REMEMBERED {
            all.clear();
        }
        let known = all.entry(mailbox).or_default();
        let is_changed = now.iter().any(|(of, state)| known.get(of).is_some_and(|known| known != state));
        known.extend(now);
        is_changed
    }
}

#[derive(Debug, Deserialize)]
struct StateChange {
    /// By account.
    changed: HashMap<String, TypeStates>,
}

#[derive(Debug, Deserialize)]
struct TypeState {
    state: String,
}

/// Waits until something changes in the account or the time is over.
pub async fn listen(client: JmapClient<'_>, at_most: Duration) -> Result<bool, ConnectorError> {
    let Some(url) = client.session.event_source_url(TYPES, PING_SECONDS)? else { return Err(without_events(&client)) };
    let http = &client.jmap.listeners;
    let response = http.response(client.authorize(http.client.get(url).header(ACCEPT, "text/event-stream"))).await?;
    // So do event sources say that there is no use in asking again, such as Cyrus' where they are switched off.
    if response.status == StatusCode::NO_CONTENT {
        return Err(without_events(&client));
    }
    if !response.status.is_success() {
        return Err(error_of_status(response.status, &response.headers));
    }
    // From here on changes are heard; these came before.
    if client.jmap.heard.update(client.account.mailbox, current_states(&client).await?) {
        return Ok(true);
    }
    let heard: ConnectorFuture<'_, ()> = Box::pin(wait_for_change(&client, response.body));
    match timeout(at_most, heard).await {
        Ok(heard) => heard.map(|()| true),
        Err(_) => Ok(false),
    }
}

/// Notes that the mailbox is to be polled.
fn without_events(client: &JmapClient<'_>) -> ConnectorError {
    client.jmap.forget_listening(client.account.mailbox);
    protocol("the server has no event source")
}

async fn current_states(client: &JmapClient<'_>) -> Result<TypeStates, ConnectorError> {
    let email = JmapCall::new("Email/get", "email", json!({"ids": [], "properties": ["id"]}));
    let mailbox = JmapCall::new("Mailbox/get", "mailbox", json!({"ids": [], "properties": ["id"]}));
    let mut responses = client.call(&[&email, &mailbox]).await?;
    let email: TypeState = responses.take("email")?;
    let mailbox: TypeState = responses.take("mailbox")?;
    Ok(TypeStates::from([("Email".to_owned(), email.state), ("Mailbox".to_owned(), mailbox.state)]))
}

async fn wait_for_change(client: &JmapClient<'_>, mut body: ResponseBody) -> Result<(), ConnectorError> {
    loop {
        let event = read_event(&mut body).await?;
        if event.name != "state" {
            continue;
        }
        let change: StateChange =
            serde_json::from_str(&event.data).map_err(|_| protocol("an event is not the expected JSON"))?;
        let own = change.changed.into_iter().find(|(account, _)| *account == client.session.account);
        if let Some((_, states)) = own
            && client.jmap.heard.update(client.account.mailbox, states)
        {
            return Ok(());
        }
    }
}

/// An event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct ServerEvent {
    name: String,
    data: String,
}

impl ServerEvent {
    fn read_line(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push_str(value),
            // An id, or a comment.
            _ => {}
        }
    }
}

/// Reads up to the empty line that ends an event.
async fn read_event(body: &mut ResponseBody) -> Result<ServerEvent, ConnectorError> {
    let mut event = ServerEvent::default();
    loop {
        let line = body.read_line(MAX_LINE_BYTES).await?.ok_or_else(|| unavailable("the events have ended"))?;
        let line = str::from_utf8(&line).map_err(|_| protocol("an event is not text"))?;
        match line.trim_end_matches('\r') {
            "" => return Ok(event),
            line => event.read_line(line),
        }
        if event.data.len() > MAX_LINE_BYTES {
            return Err(protocol("an event is too long"));
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    #[test]
    fn event_is_read_line_by_line() {
        let mut event = ServerEvent::default();

        for line in [": comment", "id: 7", "event: state", "data: {\"changed\":", "data: {}}", "retry"] {
            event.read_line(line);
        }

        assert_eq!(event, ServerEvent { name: "state".to_owned(), data: "{\"changed\":{}}".to_owned() });
    }

    #[test]
    fn state_that_was_heard_of_is_no_news() {
        let (heard, mailbox) = (HeardStates::default(), MailboxId::new(&SystemClock));
        let states = |email: &str| TypeStates::from([("Email".to_owned(), email.to_owned())]);

        assert!(!heard.update(mailbox, states("1")), "a sync has seen what came before");
        assert!(heard.update(mailbox, states("2")));
        assert!(!heard.update(mailbox, states("2")));
        assert!(heard.update(mailbox, states("3")));
    }
}
