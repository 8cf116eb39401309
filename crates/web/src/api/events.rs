//! What happened to a tenant's mail, numbered without gaps.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use domain::{EmailId, MailboxId};
use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use store::TenantStore;
use store::sql::events::{Event, EventFilter};
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::Query;
use super::auth::{Reader, may_still_read};
use super::page::{self, Page};
use super::problem::Problem;
use crate::App;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// The number of the last event that was seen; 0 for all.
    after: Option<u64>,
    /// Only these types, separated by commas.
    #[param(example = "email.received,email.deleted")]
    types: Option<String>,
    /// Only about this mailbox.
    #[param(value_type = Option<String>, format = "uuid")]
    mailbox: Option<MailboxId>,
    /// Also about mail that was there before the mailbox was connected.
    backfill: Option<bool>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// What the page before gave as `next_cursor`; the same as `after`.
    cursor: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    seq: u64,
    #[serde(rename = "type")]
    #[schema(example = "email.received")]
    kind: String,
    #[schema(value_type = Option<String>, format = "uuid")]
    mailbox_id: Option<MailboxId>,
    #[schema(value_type = Option<String>, format = "uuid")]
    email_id: Option<EmailId>,
    backfill: bool,
    #[schema(value_type = Object)]
    data: serde_json::Value,
    #[schema(value_type = String, format = DateTime)]
    at: jiff::Timestamp,
}

impl From<Event> for EventView {
    fn from(event: Event) -> Self {
        let Event { seq, kind, mailbox_id, email_id, backfill, data, at } = event;
        Self { seq, kind, mailbox_id, email_id, backfill, data, at }
    }
}

/// Events after a number, oldest first.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events", tag = "events", params(Wanted), responses(
    (status = 200, description = "What was asked for", body = Page<EventView>)))]
pub async fn list(Reader(store): Reader, Query(wanted): Query<Wanted>) -> Result<Json<Page<EventView>>, Problem> {
    let limit = page::limit(wanted.limit)?;
    let filter = filter(wanted.types.as_deref(), wanted.mailbox, wanted.backfill);
    let after = number(wanted.cursor.or(wanted.after).unwrap_or(0))?;
    let events = store.list_events_of(&filter, after, limit + 1).await?;
    Ok(Json(Page::cut(events, limit, |event| event.seq).map(EventView::from)))
}

fn filter(types: Option<&str>, mailbox: Option<MailboxId>, backfill: Option<bool>) -> EventFilter {
    let kinds = types.unwrap_or_default().split(',').map(str::trim).filter(|kind| !kind.is_empty());
    EventFilter { kinds: kinds.map(str::to_owned).collect(), mailbox, with_backfill: backfill.unwrap_or(false) }
}

fn number(after: u64) -> Result<u64, Problem> {
    match i64::try_from(after) {
        Ok(_) => Ok(after),
        Err(_) => Err(Problem::invalid("after", "it is the number of an event")),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Followed {
    /// The number of the last event that was seen; without it, only what happens from now on. `Last-Event-ID` says the
    /// same, and counts when both are there: a browser that connects again sends it by itself.
    after: Option<u64>,
    /// Only these types, separated by commas.
    #[param(example = "email.received")]
    types: Option<String>,
    /// Only about this mailbox.
    #[param(value_type = Option<String>, format = "uuid")]
    mailbox: Option<MailboxId>,
    /// Also about mail that was there before the mailbox was connected.
    backfill: Option<bool>,
}

/// Events that are read at once for one who follows.
const AT_ONCE: u64 = 100;

/// How often a comment is sent, so that nobody takes the connection for dead, and how often the key is looked at again.
const ALIVE: Duration = Duration::from_secs(15);

/// Events as they happen, as server-sent events: `id` is the number, `event` the type, `data` the event.
#[utoipa::path(get, path = "/v1/events/stream", operation_id = "follow_events", tag = "events", params(Followed), responses(
    (status = 200, description = "What was asked for", body = String, content_type = "text/event-stream")))]
pub async fn follow(
    Reader(store): Reader,
    State(app): State<App>,
    headers: HeaderMap,
    Query(wanted): Query<Followed>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Problem> {
    let last = headers.get("last-event-id").map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
    let last = last
        .map(|last: Option<u64>| last.ok_or_else(|| Problem::invalid("Last-Event-ID", "it is the number of an event")));
    let after = match last.transpose()?.or(wanted.after) {
        Some(after) => number(after)?,
        None => {
            let heads = app.engine.store.system().list_event_heads(vec![store.id]).await?;
            heads.first().map_or(0, |(_, newest)| *newest)
        }
    };
    let follower = Follower {
        filter: filter(wanted.types.as_deref(), wanted.mailbox, wanted.backfill),
        news: app.hub.follow(store.id),
        is_open: app.is_open.clone(),
        app,
        headers,
        store,
        after,
        looked_at: None,
        ready: VecDeque::new(),
        allowed_at: Instant::now(),
    };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)))
}

struct Follower {
    app: App,
    headers: HeaderMap,
    store: TenantStore,
    filter: EventFilter,
    /// All up to this one were looked at.
    after: u64,
    /// What was the newest when nothing more was found.
    looked_at: Option<u64>,
    ready: VecDeque<Event>,
    news: watch::Receiver<u64>,
    is_open: watch::Receiver<bool>,
    /// When it was last seen that the key still holds.
    allowed_at: Instant,
}

impl Follower {
    /// `None` when the stream ends: the server stops, the database cannot be reached, or the key is no more. Who connects
    /// again misses nothing.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = event.seq;
                let view = EventView::from(event);
                let sent = sse::Event::default().id(view.seq.to_string()).event(view.kind.clone());
                return sent.json_data(view).ok();
            }
            self.may_go_on().await?;
            // Numbers come in the order of commits: what is not found now is not among those up to this one.
            let head = *self.news.borrow_and_update();
            if self.looked_at == Some(head) {
                self.wait().await?; // thousands of others wait as well, and each look is a read
                continue;
            }
            let found = self.store.list_events_of(&self.filter, self.after, AT_ONCE).await.ok()?;
            if found.is_empty() {
                self.after = self.after.max(head);
                self.looked_at = Some(head);
                self.wait().await?;
            }
            self.ready.extend(found);
        }
    }

    /// Also while there is always more to tell: the server is not about to stop, and the key still holds.
    async fn may_go_on(&mut self) -> Option<()> {
        if !*self.is_open.borrow() {
            return None;
        }
        if self.allowed_at.elapsed() >= ALIVE {
            if !may_still_read(&self.headers, &self.app, self.store.id).await {
                return None;
            }
            self.allowed_at = Instant::now();
        }
        Some(())
    }

    /// For news, or until the key is to be looked at again.
    async fn wait(&mut self) -> Option<()> {
        let closed = async { drop(self.is_open.wait_for(|is_open| !is_open).await) };
        tokio::select! {
            news = self.news.changed() => news.ok(),
            () = closed => None,
            () = tokio::time::sleep(ALIVE) => Some(()),
        }
    }
}
