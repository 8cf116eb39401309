//! What happened to a tenant's mail, numbered without gaps.

use axum::Json;
use domain::{EmailId, MailboxId};
use serde::{Deserialize, Serialize};
use store::sql::events::{Event, EventFilter};
use utoipa::{IntoParams, ToSchema};

use super::Query;
use super::auth::Reader;
use super::page::{self, Page};
use super::problem::Problem;

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
#[utoipa::path(get, path = "/v1/events", tag = "events", params(Wanted), responses(
    (status = 200, body = Page<EventView>), super::Refusals))]
pub async fn list(Reader(store): Reader, Query(wanted): Query<Wanted>) -> Result<Json<Page<EventView>>, Problem> {
    let limit = page::limit(wanted.limit)?;
    let kinds = wanted.types.iter().flat_map(|types| types.split(',')).map(|kind| kind.trim().to_owned());
    let filter = EventFilter {
        kinds: kinds.filter(|kind| !kind.is_empty()).collect(),
        mailbox: wanted.mailbox,
        with_backfill: wanted.backfill.unwrap_or(false),
    };
    let after = wanted.cursor.or(wanted.after).unwrap_or(0);
    if after > i64::MAX as u64 {
        return Err(Problem::invalid("after", "it is the number of an event"));
    }
    let events = store.list_events_of(&filter, after, limit + 1).await?;
    Ok(Json(Page::cut(events, limit, |event| event.seq).map(EventView::from)))
}
