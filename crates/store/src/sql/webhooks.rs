//! Webhooks of tenants, and the leases of the processes that deliver to them.
//!
//! A webhook has a cursor in its tenant's events, and deliveries of its own for what did not come through at once. The
//! process that delivers holds a lease on it, whose fence token is checked by every record of a delivery.

use std::time::Duration;

use domain::{MailboxId, SecretId, TenantId, WebhookId, WebhookState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::column_count;
use super::events::EventFilter;
use super::jobs::later;
use crate::failpoint::Effect;
use crate::{Dialect, Precondition, Row, StoreError, SystemStore, TenantStore, TenantUnit, Unit, params};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Webhook {
    pub id: WebhookId,
    pub url: String,
    pub description: String,
    /// Names of events; empty: all.
    pub types: Vec<String>,
    /// Only events about this mailbox.
    pub mailbox_id: Option<MailboxId>,
    /// Also events about mail that was there before its mailbox was connected.
    pub with_backfill: bool,
    /// The secrets that sign, the newest first.
    #[serde(skip)]
    pub signing: Vec<SigningSecret>,
    pub state: WebhookState,
    pub state_reason: Option<String>,
    /// The number of the last event that is delivered, or has a delivery row.
    pub cursor: u64,
    /// Since when nothing has come through, how often in a row, and why the last time.
    pub failing_since: Option<Timestamp>,
    pub failures: u64,
    pub last_error: Option<String>,
    /// Until when nothing is delivered.
    pub rest_until: Option<Timestamp>,
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A secret that signs, until it is replaced and has expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningSecret {
    pub id: SecretId,
    pub until: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NewWebhook {
    pub id: WebhookId,
    pub url: String,
    pub description: String,
    pub types: Vec<String>,
    pub mailbox_id: Option<MailboxId>,
    pub with_backfill: bool,
    /// The signing secret; `unit.put_secret` belongs into the same unit.
    pub signing: SecretId,
    pub created_at: Timestamp,
}

/// The lease on a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookLease {
    pub tenant: TenantId,
    pub id: WebhookId,
    pub token: u64,
}

/// More than a tenant needs; each webhook costs a query with every event.
const MAX_WEBHOOKS: u64 = 100;

const COLUMNS: &str =
    "w.id, w.url, w.description, w.types, w.mailbox_id, w.with_backfill, w.signing, w.state, w.state_reason,
    w.cursor, w.failing_since, w.failures, w.last_error, w.rest_until, w.version, w.created_at, w.updated_at";

impl Webhook {
    pub fn filter(&self) -> EventFilter {
        EventFilter {
            kinds: self.types.clone(),
            mailbox: self.mailbox_id,
            with_backfill: self.with_backfill,
            with_restores: true,
        }
    }
}

impl TenantUnit {
    /// Adds a webhook; it gets the events after the commit.
    pub fn add_webhook(&mut self, new: &NewWebhook) {
        let NewWebhook { id, url, description, types, mailbox_id, with_backfill, signing, created_at } = new;
        let signing = json!([SigningSecret { id: *signing, until: None }]);
        self.unit.op_exactly(
            1,
            Precondition::TooManyWebhooks,
            format!(
                "insert into webhooks (tenant_id, id, url, description, types, mailbox_id, with_backfill, signing, cursor,
                                       created_at, updated_at)
                 select $1, $2, $3, $4, $5, $6, $7, $8,
                        coalesce((select event_seq from tenant_counters where tenant_id = $1), 0), $9, $9
                 where (select count(*) from webhooks where tenant_id = $1 and state <> 'removed') < {MAX_WEBHOOKS}"
            ),
            params![self.tenant, *id, url, description, json!(types), *mailbox_id, *with_backfill, signing, *created_at],
        );
    }

    /// Writes what an owner may change (address, filter, secrets, whether it is active) of the next row, unless the webhook has
    /// another version than `known` by now. With another address or state its failures are forgotten.
    pub fn change_webhook(&mut self, known: u64, webhook: &Webhook) {
        let Webhook { id, url, description, types, mailbox_id, with_backfill, signing, state, state_reason, .. } =
            webhook;
        let reset = [("failing_since", "null"), ("failures", "0"), ("last_error", "null"), ("rest_until", "null")];
        let reset = reset.map(|(column, initial)| {
            format!("{column} = case when url = $4 and state = $10 then {column} else {initial} end")
        });
        self.unit.op_exactly(
            1,
            Precondition::WebhookChanged,
            format!(
                "update webhooks set {}, url = $4, description = $5, types = $6, mailbox_id = $7, with_backfill = $8,
                    signing = $9, state = $10, state_reason = $11, version = $12, updated_at = $13,
                    token = token + 1, held_until = null
                 where tenant_id = $1 and id = $2 and version = $3 and state <> 'removed'",
                reset.join(", ")
            ),
            params![
                self.tenant,
                *id,
                known,
                url,
                description,
                json!(types),
                *mailbox_id,
                *with_backfill,
                json!(signing),
                *state,
                state_reason.clone(),
                webhook.version,
                webhook.updated_at,
            ],
        );
    }

    /// Removes a webhook with its secrets, unless it has another version by now. Its deliveries are deleted later, for there
    /// may be many.
    pub fn remove_webhook(&mut self, webhook: &Webhook) {
        self.unit.op_exactly(
            1,
            Precondition::WebhookChanged,
            "update webhooks set state = 'removed', url = '', signing = '[]', version = version + 1,
                updated_at = mailroom_now()
             where tenant_id = $1 and id = $2 and version = $3 and state <> 'removed'",
            params![self.tenant, webhook.id, webhook.version],
        );
        for signing in &webhook.signing {
            self.delete_secret(signing.id);
        }
    }
}

impl TenantStore {
    pub async fn find_webhook(&self, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        let sql =
            format!("select {COLUMNS} from webhooks w where w.tenant_id = $1 and w.id = $2 and w.state <> 'removed'");
        self.query_one(sql, params![self.id, id]).await?.as_ref().map(webhook).transpose()
    }

    /// Lists webhooks in the order in which they were made, after a given one.
    pub async fn list_webhooks_after(&self, after: Option<WebhookId>, limit: u64) -> Result<Vec<Webhook>, StoreError> {
        let after = after.unwrap_or(WebhookId(uuid::Uuid::nil()));
        let sql = format!(
            "select {COLUMNS} from webhooks w where w.tenant_id = $1 and w.id > $2 and w.state <> 'removed'
             order by w.id limit $3"
        );
        self.query(sql, params![self.id, after, limit]).await?.iter().map(webhook).collect()
    }

    /// Finds the webhook of a lease, with the number of the newest event. Returns `None` if the lease was lost, or if the
    /// webhook or its tenant is inactive.
    pub async fn find_held_webhook(&self, held: WebhookLease) -> Result<Option<(Webhook, u64)>, StoreError> {
        let sql = format!(
            "select {COLUMNS}, coalesce(c.event_seq, 0) from webhooks w join tenants t on t.id = w.tenant_id
             left join tenant_counters c on c.tenant_id = w.tenant_id
             where w.tenant_id = $1 and w.id = $2 and w.token = $3 and w.state = 'active' and t.is_active"
        );
        let row = self.query_one(sql, params![self.id, held.id, held.token]).await?;
        row.map(|row| Ok((webhook(&row)?, row.get(column_count(COLUMNS))?))).transpose()
    }
}

/// Of `webhooks w`, `tenants t` and `tenant_counters c`: there is something to deliver, and no process holds it.
const IS_DUE: &str =
    "w.state = 'active' and t.is_active and (w.rest_until is null or w.rest_until <= (select mailroom_now()))
    and (w.held_until is null or w.held_until <= (select mailroom_now()))
    and (w.due_at <= (select mailroom_now()) or c.event_seq > w.cursor)";

impl SystemStore {
    /// Claims up to `most` webhooks that have something to deliver and that no process holds, those first that were not
    /// served for longest.
    pub async fn claim_webhooks(&self, me: &str, most: u64, hold: Duration) -> Result<Vec<WebhookLease>, StoreError> {
        let from = format!(
            "from webhooks w join tenants t on t.id = w.tenant_id left join tenant_counters c on c.tenant_id = w.tenant_id
             where {IS_DUE}"
        );
        // Most of the time there is nothing, and then nothing is written.
        if self.query_one(format!("select 1 {from} limit 1"), vec![]).await?.is_none() {
            return Ok(Vec::new());
        }
        let dialect = self.store.dialect();
        // Concurrent claims take different ones, and none waits.
        let lock = match dialect {
            Dialect::Postgres => "for no key update of w skip locked",
            Dialect::Sqlite => "",
        };
        let mut unit = Unit::default();
        let claimed = unit.op_returning(
            format!(
                "update webhooks set holder = $1, token = token + 1, held_until = {} from (
                    select w.tenant_id as due_tenant, w.id as due_id {from} order by w.held_until nulls first limit $3 {lock}
                 ) due
                 where tenant_id = due_tenant and id = due_id
                 returning tenant_id, id, token",
                later(dialect, "$2")
            ),
            params![me, millis(hold), most],
        );
        let committed = self.commit_at(Effect::ClaimWebhooks, unit).await?;
        committed
            .returned(claimed)
            .iter()
            .map(|row: &Row| Ok(WebhookLease { tenant: row.get(0)?, id: row.get(1)?, token: row.get(2)? }))
            .collect()
    }

    /// Releases leases, so that other processes can claim the webhooks at once.
    pub async fn release_webhooks(&self, held: &[WebhookLease]) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        for WebhookLease { tenant, id, token } in held {
            unit.op(
                "update webhooks set holder = null, held_until = mailroom_now()
                 where tenant_id = $1 and id = $2 and token = $3",
                params![*tenant, *id, *token],
            );
        }
        self.commit(unit).await.map(drop)
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn unreadable(_: serde_json::Error) -> StoreError {
    StoreError::corrupt("the settings of a webhook are not readable")
}

fn webhook(row: &Row) -> Result<Webhook, StoreError> {
    Ok(Webhook {
        id: row.get(0)?,
        url: row.get(1)?,
        description: row.get(2)?,
        types: serde_json::from_value(row.get(3)?).map_err(unreadable)?,
        mailbox_id: row.get(4)?,
        with_backfill: row.get(5)?,
        signing: serde_json::from_value(row.get(6)?).map_err(unreadable)?,
        state: row.get(7)?,
        state_reason: row.get(8)?,
        cursor: row.get(9)?,
        failing_since: row.get(10)?,
        failures: row.get(11)?,
        last_error: row.get(12)?,
        rest_until: row.get(13)?,
        version: row.get(14)?,
        created_at: row.get(15)?,
        updated_at: row.get(16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_webhook_says_how_many_there_may_be() {
        let text = Precondition::TooManyWebhooks.to_string();

        assert!(text.contains(&format!("at most {MAX_WEBHOOKS} webhooks")), "{text}");
    }
}
