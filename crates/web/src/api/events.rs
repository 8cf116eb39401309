//! Events of a tenant, numbered in the order of commits: as a list, and as a stream of server-sent events.

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
use store::sql::event_gaps::{EventLoss, MissedEvents};
use store::sql::events::{Event, EventFilter};
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::Query;
use super::auth::{TenantReader, may_still_read};
use super::event_types;
use super::page::{self, Page};
use super::problem::Problem;
use crate::App;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Sequence number of the last event that was read; 0 for all events.
    after: Option<u64>,
    /// Only events of these types (see the schema `EventType`), separated by commas.
    #[param(example = "email.received,email.deleted")]
    types: Option<String>,
    /// Only events of this mailbox.
    #[param(value_type = Option<String>, format = "uuid")]
    mailbox: Option<MailboxId>,
    /// Include events of mail that existed before the mailbox was connected.
    backfill: Option<bool>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// `next_cursor` of the previous page; the same as `after`.
    cursor: Option<u64>,
}

/// Something that happened to a mailbox or an email.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// Sequence number, per tenant without gaps but those that a restore leaves.
    seq: u64,
    /// One of the schema `EventType`, or a type that was added later.
    #[serde(rename = "type")]
    #[schema(example = "email.received")]
    kind: String,
    #[schema(value_type = Option<String>, format = "uuid")]
    mailbox_id: Option<MailboxId>,
    #[schema(value_type = Option<String>, format = "uuid")]
    email_id: Option<EmailId>,
    /// Whether the email existed before its mailbox was connected.
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

/// List events after a sequence number, oldest first.
#[utoipa::path(get, path = "/v1/events", operation_id = "list_events", tag = "events", params(EventQuery), responses(
    (status = 200, description = "Matching events", body = Page<EventView>),
    (status = 410, body = Problem, content_type = "application/problem+json",
     description = "Events after this number are gone: it is from before a restore, or they are no longer kept")))]
pub async fn list(
    TenantReader(store): TenantReader,
    Query(params): Query<EventQuery>,
) -> Result<Json<Page<EventView>>, Problem> {
    let limit = page::limit(params.limit)?;
    let filter = filter(params.types.as_deref(), params.mailbox, params.backfill)?;
    let after = check_sequence(params.cursor.or(params.after).unwrap_or(0))?;
    let events = store.list_filtered_events(&filter, after, limit + 1).await?;
    // After the read, so that what is pruned meanwhile is noticed.
    if events.first().is_none_or(|first| first.seq != after + 1) {
        check_missed(&store, after).await?;
    }
    Ok(Json(Page::cut(events, limit, |event| event.seq).map(EventView::from)))
}

fn filter(types: Option<&str>, mailbox: Option<MailboxId>, backfill: Option<bool>) -> Result<EventFilter, Problem> {
    Ok(EventFilter {
        kinds: event_types::read_filter(types)?,
        mailbox,
        with_backfill: backfill.unwrap_or(false),
        ..EventFilter::default()
    })
}

/// Refuses a number after which events are gone: to go on there would miss them in silence.
async fn check_missed(store: &TenantStore, after: u64) -> Result<(), Problem> {
    let Some(MissedEvents { loss, continue_after }) = store.find_missed_events(after).await? else { return Ok(()) };
    let why = match loss {
        EventLoss::Restored => {
            format!("the number {after} is from before this installation was restored from a backup")
        }
        EventLoss::Pruned => format!("events after {after} are no longer kept (events.keep)"),
        EventLoss::NeverGiven => {
            format!("no event has the number {after} yet; perhaps this installation was restored from a backup")
        }
    };
    let what_to_do = format!("read anew what you need, then go on with after={continue_after}");
    Err(Problem::gone(format!("{why}; {what_to_do}"), continue_after))
}

fn check_sequence(after: u64) -> Result<u64, Problem> {
    match i64::try_from(after) {
        Ok(_) => Ok(after),
        Err(_) => Err(Problem::invalid("after", "must be the sequence number of an event")),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventStreamParams {
    /// Sequence number of the last event that was read. Default: only new events. The header `Last-Event-ID`, which browsers
    /// send when they reconnect, takes precedence.
    after: Option<u64>,
    /// Only events of these types (see the schema `EventType`), separated by commas.
    #[param(example = "email.received")]
    types: Option<String>,
    /// Only events of this mailbox.
    #[param(value_type = Option<String>, format = "uuid")]
    mailbox: Option<MailboxId>,
    /// Include events of mail that existed before the mailbox was connected.
    backfill: Option<bool>,
}

/// Events that are read at once for one stream.
const EVENTS_PER_READ: u64 = 100;

/// Interval of keep-alive comments, and of checks whether the key is still valid.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Follow events as server-sent events.
///
/// `id` is the sequence number, `event` the type, `data` the event as in the list.
#[utoipa::path(get, path = "/v1/events/stream", operation_id = "follow_events", tag = "events", params(EventStreamParams), responses(
    (status = 200, description = "A stream of events without an end", body = String, content_type = "text/event-stream"),
    (status = 410, body = Problem, content_type = "application/problem+json",
     description = "Events after this number are gone: it is from before a restore, or they are no longer kept")))]
pub async fn follow(
    TenantReader(store): TenantReader,
    State(app): State<App>,
    headers: HeaderMap,
    Query(params): Query<EventStreamParams>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Problem> {
    let last = headers.get("last-event-id").map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
    let last = last.map(|last: Option<u64>| {
        last.ok_or_else(|| Problem::invalid("Last-Event-ID", "must be the sequence number of an event"))
    });
    let after = match last.transpose()?.or(params.after) {
        Some(after) => {
            check_missed(&store, check_sequence(after)?).await?;
            after
        }
        None => {
            let heads = app.engine.store.system().list_event_heads(vec![store.id]).await?;
            heads.first().map_or(0, |(_, newest)| *newest)
        }
    };
    let stream = EventStream {
        filter: filter(params.types.as_deref(), params.mailbox, params.backfill)?,
        head: app.event_hub.subscribe(store.id),
        is_open: app.is_open.clone(),
        app,
        headers,
        store,
        after,
        idle_at_head: None,
        ready: VecDeque::new(),
        allowed_at: Instant::now(),
    };
    let events = stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((Ok(event), stream))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)))
}

struct EventStream {
    app: App,
    headers: HeaderMap,
    store: TenantStore,
    filter: EventFilter,
    /// Events up to this sequence number have been read.
    after: u64,
    /// Newest sequence number when the last read found nothing.
    idle_at_head: Option<u64>,
    ready: VecDeque<Event>,
    head: watch::Receiver<u64>,
    is_open: watch::Receiver<bool>,
    /// When the key was last checked.
    allowed_at: Instant,
}

impl EventStream {
    /// Returns `None` when the stream ends: the server stops, the database is unavailable, or the key is not valid any more.
    /// A client that reconnects with `Last-Event-ID` misses nothing.
    async fn next(&mut self) -> Option<sse::Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = event.seq;
                let view = EventView::from(event);
                let sent = sse::Event::default().id(view.seq.to_string()).event(view.kind.clone());
                return sent.json_data(view).ok();
            }
            self.check_access().await?;
            // Sequence numbers are in commit order: what a read up to the head does not find will not appear below it.
            let head = *self.head.borrow_and_update();
            if self.idle_at_head == Some(head) {
                self.wait().await?; // thousands of streams wait as well, and each read is a query
                continue;
            }
            let found = self.store.list_filtered_events(&self.filter, self.after, EVENTS_PER_READ).await.ok()?;
            if found.is_empty() {
                self.after = self.after.max(head);
                self.idle_at_head = Some(head);
                self.wait().await?;
            }
            self.ready.extend(found);
        }
    }

    /// Ends the stream if the server is about to stop or the key is not valid any more, also while there are always events.
    async fn check_access(&mut self) -> Option<()> {
        if !*self.is_open.borrow() {
            return None;
        }
        if self.allowed_at.elapsed() >= KEEP_ALIVE_INTERVAL {
            if !may_still_read(&self.headers, &self.app, self.store.id).await {
                return None;
            }
            self.allowed_at = Instant::now();
        }
        Some(())
    }

    /// Waits for new events, or until the key has to be checked again.
    async fn wait(&mut self) -> Option<()> {
        let closed = async { drop(self.is_open.wait_for(|is_open| !is_open).await) };
        tokio::select! {
            head = self.head.changed() => head.ok(),
            () = closed => None,
            () = tokio::time::sleep(KEEP_ALIVE_INTERVAL) => Some(()),
        }
    }
}
