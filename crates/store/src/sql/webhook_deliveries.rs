//! Deliveries: one event for one webhook, with the results and the next attempt.

use std::time::Duration;

use domain::{DeliveryId, DeliveryState, EventType, WebhookId};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::events::{EVENT_COLUMNS, EVENT_STEP, Event, INTO_DRAFTS, event};
use super::jobs::later;
use super::webhooks::{WebhookLease, millis};
use super::{any, columns_of};
use crate::failpoint::{self, Effect, Guard};
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Dialect, OpId, Precondition, Row, StoreError, SystemStore, TenantStore, TenantUnit, Unit, Value, params};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Delivery {
    pub id: DeliveryId,
    pub webhook_id: WebhookId,
    /// `None`: a ping.
    pub event_seq: Option<u64>,
    #[serde(rename = "type")]
    pub kind: String,
    pub state: DeliveryState,
    pub attempts: u64,
    /// When it is delivered next.
    pub next_at: Option<Timestamp>,
    pub last_at: Option<Timestamp>,
    pub last_status: Option<u64>,
    /// The beginning of the response, or the error.
    pub last_answer: Option<String>,
    pub last_millis: Option<u64>,
    pub created_at: Timestamp,
}

/// A delivery that is due.
#[derive(Debug, Clone, PartialEq)]
pub struct DueDelivery {
    pub id: DeliveryId,
    pub kind: String,
    pub event_seq: Option<u64>,
    pub attempts: u64,
    pub created_at: Timestamp,
    /// `None`: it is a ping, or the event was pruned.
    pub event: Option<Event>,
}

/// As many as fit well into one commit.
pub const MAX_RESENT_DELIVERIES: u64 = 10_000;

const COLUMNS: &str = "id, webhook_id, event_seq, type, state, attempts, next_at, last_at, last_status, last_answer,
    last_millis, created_at";

/// The finished deliveries that are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResendFilter {
    Failed,
    FailedAndDelivered,
}

impl TenantStore {
    pub async fn find_delivery(&self, webhook: WebhookId, id: DeliveryId) -> Result<Option<Delivery>, StoreError> {
        let sql =
            format!("select {COLUMNS} from webhook_deliveries where tenant_id = $1 and webhook_id = $2 and id = $3");
        self.query_one(sql, params![self.id, webhook, id]).await?.as_ref().map(delivery).transpose()
    }

    /// Lists deliveries, the newest first, before a given one; only those in this state, if one is given.
    pub async fn list_deliveries(
        &self,
        webhook: WebhookId,
        state: Option<DeliveryState>,
        before: Option<DeliveryId>,
        limit: u64,
    ) -> Result<Vec<Delivery>, StoreError> {
        let before = before.unwrap_or(DeliveryId(uuid::Uuid::max()));
        let of_state = match state {
            Some(_) => "and state = $5",
            None => "",
        };
        let sql = format!(
            "select {COLUMNS} from webhook_deliveries where tenant_id = $1 and webhook_id = $2 and id < $3 {of_state}
             order by id desc limit $4"
        );
        let mut params = params![self.id, webhook, before, limit];
        params.extend(state.map(Value::from));
        self.query(sql, params).await?.iter().map(delivery).collect()
    }

    /// Lists the deliveries that are due, with their events.
    pub async fn list_due_deliveries(&self, webhook: WebhookId, limit: u64) -> Result<Vec<DueDelivery>, StoreError> {
        let sql = format!(
            "select d.id, d.type, d.event_seq, d.attempts, d.created_at, {} from webhook_deliveries d
             left join events e on e.tenant_id = d.tenant_id and e.seq = d.event_seq
             where d.tenant_id = $1 and d.webhook_id = $2 and d.state = 'waiting' and d.next_at <= (select mailroom_now())
             order by d.next_at, d.id limit $3",
            columns_of("e", EVENT_COLUMNS)
        );
        self.query(sql, params![self.id, webhook, limit])
            .await?
            .iter()
            .map(|row: &Row| {
                let is_there = row.get::<Option<u64>>(5)?.is_some();
                Ok(DueDelivery {
                    id: row.get(0)?,
                    kind: row.get(1)?,
                    event_seq: row.get(2)?,
                    attempts: row.get(3)?,
                    created_at: row.get(4)?,
                    event: is_there.then(|| event(row, 5)).transpose()?,
                })
            })
            .collect()
    }
}

impl TenantUnit {
    /// Adds a delivery without an event, due at once.
    pub fn ping(&mut self, webhook: WebhookId) -> DeliveryId {
        let id = DeliveryId::new(self.store.clock());
        self.unit.op(
            "insert into webhook_deliveries (tenant_id, id, webhook_id, type, state, attempts, next_at, created_at)
             values ($1, $2, $3, $4, 'waiting', 0, mailroom_now(), mailroom_now())",
            params![self.tenant, id, webhook, EventType::WebhookPing.as_str()],
        );
        self.wake(webhook);
        id
    }

    /// Sends those of these deliveries that are finished again, under their ids. `CommitOutcome::changed` returns how many.
    pub fn resend(&mut self, webhook: WebhookId, ids: Vec<DeliveryId>) -> OpId {
        let among = any(self.store.dialect(), "id", 3);
        let resent = self.unit.op(
            format!("{RESEND} where tenant_id = $1 and webhook_id = $2 and {among} and state <> 'waiting'"),
            params![self.tenant, webhook, ids],
        );
        self.wake(webhook);
        resent
    }

    /// Sends finished deliveries since then again, the oldest first and at most [`MAX_RESENT_DELIVERIES`].
    pub fn resend_since(&mut self, webhook: WebhookId, since: Timestamp, which: ResendFilter) -> OpId {
        let over = match which {
            ResendFilter::Failed => "state = 'failed'",
            ResendFilter::FailedAndDelivered => "state in ('failed', 'delivered')",
        };
        let resent = self.unit.op(
            format!(
                "{RESEND} where tenant_id = $1 and webhook_id = $2 and id in (
                    select id from webhook_deliveries
                    where tenant_id = $1 and webhook_id = $2 and id >= $3 and {over} order by id limit {MAX_RESENT_DELIVERIES})"
            ),
            params![self.tenant, webhook, DeliveryId::first_at(since)],
        );
        self.wake(webhook);
        resent
    }

    /// Makes the webhook due at once, also if it is in backoff.
    fn wake(&mut self, webhook: WebhookId) {
        self.unit.op(
            "update webhooks set due_at = mailroom_now(), rest_until = null
             where tenant_id = $1 and id = $2 and state <> 'removed'",
            params![self.tenant, webhook],
        );
    }
}

const RESEND: &str = "update webhook_deliveries set state = 'waiting', next_at = mailroom_now()";

/// The result of one attempt to deliver.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryAttempt {
    pub id: DeliveryId,
    pub event_seq: Option<u64>,
    pub kind: String,
    pub state: DeliveryState,
    pub attempts: u64,
    /// When it is tried again.
    pub retry_in: Option<Duration>,
    pub status: Option<u16>,
    pub answer: Option<String>,
    pub took: Duration,
}

/// The health of a webhook after the attempts of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum WebhookHealth {
    /// There was no attempt.
    Unknown,
    /// A limit of ours allowed no attempt, and none before the end of `rest`.
    PutOff { why: String, rest: Duration },
    /// A delivery succeeded. `rest`: it asked for a pause of so long.
    Healthy { rest: Option<Duration> },
    /// No delivery succeeded. It is disabled when that has been so for too long.
    Failing { why: String, rest: Duration, too_long: Duration },
    /// It wants no more deliveries.
    Gone { why: String },
}

/// The result of a batch of deliveries.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryBatch {
    pub attempts: Vec<DeliveryAttempt>,
    /// All events up to this one are delivered, have a delivery row, or are filtered out.
    pub cursor: u64,
    pub health: WebhookHealth,
    /// It was failing before.
    pub was_failing: bool,
    /// How long the lease is extended; `None`: it is released.
    pub hold: Option<Duration>,
}

impl TenantUnit {
    /// Records the results of a batch, only if the webhook is still held by this token. Returns the operation that changes
    /// a row if the webhook is disabled by it; `None`: nothing of the batch can disable it.
    pub fn record_deliveries(&mut self, held: WebhookLease, batch: DeliveryBatch) -> Option<OpId> {
        let WebhookLease { id, token, .. } = held;
        let DeliveryBatch { attempts: tried, cursor, health, was_failing, hold } = batch;
        if !failpoint::is_off(Guard::WebhookToken) {
            let lock = match self.store.dialect() {
                Dialect::Postgres => "for no key update",
                Dialect::Sqlite => "",
            };
            self.unit.op_returning_exactly(
                1,
                Precondition::DeliveryTakenOver,
                format!(
                    "select 1 from webhooks where tenant_id = $1 and id = $2 and token = $3 and state <> 'removed' {lock}"
                ),
                params![self.tenant, id, token],
            );
        }
        self.record_tried(id, tried);
        if was_failing && matches!(health, WebhookHealth::Healthy { .. }) {
            // It works again, so that waiting deliveries are due at once.
            self.unit.op(
                "update webhook_deliveries set next_at = mailroom_now()
                 where tenant_id = $1 and webhook_id = $2 and state = 'waiting' and next_at > mailroom_now()",
                params![self.tenant, id],
            );
        }
        let disabled = self.record_health(id, &health);
        self.unit.op(
            format!(
                "update webhooks set cursor = case when cursor < $3 then $3 else cursor end,
                    due_at = (select min(next_at) from webhook_deliveries d
                              where d.tenant_id = $1 and d.webhook_id = $2 and d.state = 'waiting'),
                    held_until = {}, holder = case when $4 > 0 then holder end
                 where tenant_id = $1 and id = $2",
                later(self.store.dialect(), "$4")
            ),
            params![self.tenant, id, cursor, hold.map_or(0, millis)],
        );
        disabled
    }

    fn record_tried(&mut self, webhook: WebhookId, tried: Vec<DeliveryAttempt>) {
        if tried.is_empty() {
            return;
        }
        let dialect = self.store.dialect();
        let again_at = format!("case when u.again_in is not null then {} end", later(dialect, "u.again_in"));
        self.unit.insert(Insert {
            into: "webhook_deliveries (tenant_id, id, webhook_id, event_seq, type, state, attempts, last_status, last_answer,
                last_millis, next_at, last_at, created_at)"
                .into(),
            columns: ATTEMPT_COLUMNS,
            rows: tried.into_iter().map(|tried: DeliveryAttempt| {
            let DeliveryAttempt { id, event_seq, kind, state, attempts, retry_in: again_in, status, answer, took } = tried;
            let again_in = again_in.map(millis);
            params![
                self.tenant,
                id,
                webhook,
                event_seq,
                kind,
                state,
                attempts,
                again_in,
                status.map(u32::from),
                answer,
                millis(took)
            ]
        }).collect(),
            select: format!(
                "u.tenant_id, u.id, u.webhook_id, u.event_seq, u.type, u.state, u.attempts, u.status, u.answer, u.took,
                 {again_at}, mailroom_now(), mailroom_now()"
            )
            .into(),
            join_where: "",
            on_conflict: "on conflict (tenant_id, id) do update set state = excluded.state, attempts = excluded.attempts,
                last_status = excluded.last_status, last_answer = excluded.last_answer, last_millis = excluded.last_millis,
                next_at = excluded.next_at, last_at = excluded.last_at"
                .into(),
            batching: InsertBatching::Many,
        });
    }

    fn record_health(&mut self, webhook: WebhookId, health: &WebhookHealth) -> Option<OpId> {
        let dialect = self.store.dialect();
        match health {
            WebhookHealth::Unknown => None,
            WebhookHealth::PutOff { why, rest } => {
                self.unit.op(
                    format!(
                        "update webhooks set last_error = $3, rest_until = {} where tenant_id = $1 and id = $2",
                        later(dialect, "$4")
                    ),
                    params![self.tenant, webhook, why, millis(*rest)],
                );
                None
            }
            WebhookHealth::Healthy { rest } => {
                let rest_until = rest.map_or("null".to_owned(), |_| later(dialect, "$3"));
                let mut params = params![self.tenant, webhook];
                params.extend(rest.map(|rest| Value::from(millis(rest))));
                self.unit.op(
                    format!(
                        "update webhooks set failing_since = null, failures = 0, last_error = null, rest_until = {rest_until}
                         where tenant_id = $1 and id = $2"
                    ),
                    params,
                );
                None
            }
            WebhookHealth::Failing { why, rest, too_long } => {
                self.unit.op(
                    format!(
                        "update webhooks set failing_since = coalesce(failing_since, mailroom_now()), failures = failures + 1,
                            last_error = $3, rest_until = {} where tenant_id = $1 and id = $2",
                        later(dialect, "$4")
                    ),
                    params![self.tenant, webhook, why, millis(*rest)],
                );
                let ago = i64::try_from(millis(*too_long)).map_or(i64::MIN, |millis| -millis);
                let long_ago = format!("failing_since <= {}", later(dialect, "$4"));
                let days = too_long.as_secs() / 86_400;
                let reason = format!("all deliveries have failed for {days} days: {why}");
                Some(self.disable(webhook, &reason, &long_ago, Some(ago)))
            }
            WebhookHealth::Gone { why } => Some(self.disable(webhook, why, "true", None)),
        }
    }

    /// Disables an active webhook that meets the condition, with an event for its owner.
    fn disable(&mut self, webhook: WebhookId, reason: &str, condition: &str, value: Option<i64>) -> OpId {
        let unit = self.draft_id();
        let here = format!("tenant_id = $1 and id = $2 and state = 'active' and {condition}");
        let mut params = params![self.tenant, webhook, reason];
        params.extend(value.map(Value::from));
        let n = params.len();
        let data = json!({"webhook_id": webhook, "reason": reason});
        let mut draft = params![self.tenant, webhook, unit];
        draft.extend(value.map(Value::from));
        draft.extend(params![data]);
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', null, null, false, ${}
                 from webhooks where {here}",
                n + 1,
                kind = EventType::WebhookDisabled,
            ),
            draft,
        );
        self.unit.op(
            format!(
                "update webhooks set state = 'disabled', state_reason = $3, version = version + 1,
                    updated_at = mailroom_now() where {here}"
            ),
            params,
        )
    }
}

const ATTEMPT_COLUMNS: &[(&str, ColumnType)] = &[
    ("tenant_id", ColumnType::Uuid),
    ("id", ColumnType::Uuid),
    ("webhook_id", ColumnType::Uuid),
    ("event_seq", ColumnType::Int),
    ("type", ColumnType::Text),
    ("state", ColumnType::Text),
    ("attempts", ColumnType::Int),
    ("again_in", ColumnType::Int),
    ("status", ColumnType::Int),
    ("answer", ColumnType::Text),
    ("took", ColumnType::Int),
];

/// As many as fit well into one commit.
const PRUNE_BATCH_ROWS: u64 = 5000;

impl SystemStore {
    /// Deletes old finished deliveries, and removed webhooks, in one batch; returns `true` while there may be more.
    pub async fn prune_deliveries(&self, keep: Duration) -> Result<bool, StoreError> {
        let ago = i64::try_from(millis(keep)).map_or(i64::MIN, |millis| -millis);
        let mut unit = Unit::default();
        let old = unit.op(
            format!(
                "delete from webhook_deliveries where (tenant_id, id) in (
                    select tenant_id, id from webhook_deliveries
                    where state <> 'waiting' and created_at < {} order by created_at limit {PRUNE_BATCH_ROWS})",
                later(self.store.dialect(), "$1")
            ),
            params![ago],
        );
        let removed = unit.op(
            format!(
                "delete from webhook_deliveries where (tenant_id, id) in (
                    select d.tenant_id, d.id from webhooks w
                    join webhook_deliveries d on d.tenant_id = w.tenant_id and d.webhook_id = w.id
                    where w.state = 'removed' limit {PRUNE_BATCH_ROWS})"
            ),
            vec![],
        );
        unit.op(
            "delete from webhooks where state = 'removed' and not exists (
                select 1 from webhook_deliveries d where d.tenant_id = webhooks.tenant_id and d.webhook_id = webhooks.id)",
            vec![],
        );
        let committed = self.commit_at(Effect::PruneDeliveries, unit).await?;
        Ok(committed.changed(old).max(committed.changed(removed)) >= PRUNE_BATCH_ROWS)
    }
}

fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    Ok(Delivery {
        id: row.get(0)?,
        webhook_id: row.get(1)?,
        event_seq: row.get(2)?,
        kind: row.get(3)?,
        state: row.get(4)?,
        attempts: row.get(5)?,
        next_at: row.get(6)?,
        last_at: row.get(7)?,
        last_status: row.get(8)?,
        last_answer: row.get(9)?,
        last_millis: row.get(10)?,
        created_at: row.get(11)?,
    })
}
