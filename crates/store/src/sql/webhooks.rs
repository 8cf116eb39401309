//! Where tenants want to be told of events, and who tells them.
//!
//! A webhook has a place among its tenant's events, and deliveries of its own for what did not come through at once. Whoever
//! delivers holds it for a while by a token, which every record of what was delivered checks.

use std::time::Duration;

use domain::{MailboxId, SecretId, TenantId, WebhookId, WebhookState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::events::EventFilter;
use super::jobs::later;
use crate::failpoint::{self, Effect};
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, TenantUnit, Unit, params};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Webhook {
    pub id: WebhookId,
    pub url: String,
    pub description: String,
    /// Names of events; none: all.
    pub types: Vec<String>,
    /// Only about this mailbox.
    pub mailbox_id: Option<MailboxId>,
    /// Also about mail that was there before its mailbox was connected.
    pub with_backfill: bool,
    /// Each of them signs, the newest first.
    #[serde(skip)]
    pub signing: Vec<Signing>,
    pub state: WebhookState,
    pub state_reason: Option<String>,
    /// The number of the last event that is delivered, or has a delivery of its own.
    pub cursor: u64,
    /// Since when nothing has come through, how often in a row, and why the last time.
    pub failing_since: Option<Timestamp>,
    pub failures: u64,
    pub last_error: Option<String>,
    /// Until when nothing is tried.
    pub rest_until: Option<Timestamp>,
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A secret that signs, until it is replaced and its time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signing {
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
    /// What signs; `unit.put_secret` belongs into the same unit.
    pub signing: SecretId,
}

/// A webhook that somebody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldWebhook {
    pub tenant: TenantId,
    pub id: WebhookId,
    pub token: u64,
}

/// What who adds one is told. More than anybody needs; each costs a look whenever something happens.
pub const TOO_MANY_WEBHOOKS: &str = "a tenant has at most 100 webhooks; remove one first";
const MOST_WEBHOOKS: u64 = 100;

/// What who changes or removes one is told that somebody else changed or removed first.
pub const WEBHOOK_CHANGED: &str = "the webhook was changed or removed meanwhile";

const COLUMNS: &str =
    "w.id, w.url, w.description, w.types, w.mailbox_id, w.with_backfill, w.signing, w.state, w.state_reason,
    w.cursor, w.failing_since, w.failures, w.last_error, w.rest_until, w.version, w.created_at, w.updated_at";

/// How many columns those are.
const WIDTH: usize = 17;

impl Webhook {
    pub fn filter(&self) -> EventFilter {
        EventFilter { kinds: self.types.clone(), mailbox: self.mailbox_id, with_backfill: self.with_backfill }
    }
}

impl TenantUnit {
    /// It is told of what happens after the commit.
    pub fn add_webhook(&mut self, new: &NewWebhook) {
        let NewWebhook { id, url, description, types, mailbox_id, with_backfill, signing } = new;
        let signing = json!([Signing { id: *signing, until: None }]);
        self.unit.op_exactly(
            1,
            TOO_MANY_WEBHOOKS,
            format!(
                "insert into webhooks (tenant_id, id, url, description, types, mailbox_id, with_backfill, signing, cursor,
                                       created_at, updated_at)
                 select $1, $2, $3, $4, $5, $6, $7, $8,
                        coalesce((select event_seq from tenant_counters where tenant_id = $1), 0), mailroom_now(), mailroom_now()
                 where (select count(*) from webhooks where tenant_id = $1 and state <> 'removed') < {MOST_WEBHOOKS}"
            ),
            params![self.tenant, *id, url, description, json!(types), *mailbox_id, *with_backfill, signing],
        );
    }

    /// Writes what an owner may change (where, what about, what signs, whether it is active), unless it has another version
    /// by now. With another address or state it begins as if nothing had ever failed.
    pub fn change_webhook(&mut self, webhook: &Webhook) {
        let Webhook { id, url, description, types, mailbox_id, with_backfill, signing, state, state_reason, .. } =
            webhook;
        let anew = |column: &str, fresh: &str| {
            format!("{column} = case when url = $4 and state = $10 then {column} else {fresh} end")
        };
        let anew = [
            anew("failing_since", "null"),
            anew("failures", "0"),
            anew("last_error", "null"),
            anew("rest_until", "null"),
        ];
        self.unit.op_exactly(
            1,
            WEBHOOK_CHANGED,
            format!(
                "update webhooks set {}, url = $4, description = $5, types = $6, mailbox_id = $7, with_backfill = $8,
                    signing = $9, state = $10, state_reason = $11, version = version + 1, updated_at = mailroom_now(),
                    token = token + 1, held_until = null
                 where tenant_id = $1 and id = $2 and version = $3 and state <> 'removed'",
                anew.join(", ")
            ),
            params![
                self.tenant,
                *id,
                webhook.version,
                url,
                description,
                json!(types),
                *mailbox_id,
                *with_backfill,
                json!(signing),
                *state,
                state_reason.clone(),
            ],
        );
    }

    /// Nothing is delivered any more, and what signed is gone, unless it has another version by now. Its deliveries are
    /// forgotten later, for there may be many.
    pub fn remove_webhook(&mut self, webhook: &Webhook) {
        self.unit.op_exactly(
            1,
            WEBHOOK_CHANGED,
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

    /// In the order in which they were made, after a given one.
    pub async fn list_webhooks_after(&self, after: Option<WebhookId>, limit: u64) -> Result<Vec<Webhook>, StoreError> {
        let after = after.unwrap_or(WebhookId(uuid::Uuid::nil()));
        let sql = format!(
            "select {COLUMNS} from webhooks w where w.tenant_id = $1 and w.id > $2 and w.state <> 'removed'
             order by w.id limit $3"
        );
        self.query(sql, params![self.id, after, limit]).await?.iter().map(webhook).collect()
    }

    /// What its holder goes by, with the number of the newest event. `None`: it is somebody else's by now, or nothing is to
    /// be delivered any more, because it or its tenant was switched off.
    pub async fn find_held_webhook(&self, held: HeldWebhook) -> Result<Option<(Webhook, u64)>, StoreError> {
        let sql = format!(
            "select {COLUMNS}, coalesce(c.event_seq, 0) from webhooks w join tenants t on t.id = w.tenant_id
             left join tenant_counters c on c.tenant_id = w.tenant_id
             where w.tenant_id = $1 and w.id = $2 and w.token = $3 and w.state = 'active' and t.is_active"
        );
        let row = self.query_one(sql, params![self.id, held.id, held.token]).await?;
        row.map(|row| Ok((webhook(&row)?, row.get(WIDTH)?))).transpose()
    }
}

/// Of `webhooks w`, `tenants t` and `tenant_counters c`: there is something to deliver, and nobody is at it.
const DUE: &str =
    "w.state = 'active' and t.is_active and (w.rest_until is null or w.rest_until <= (select mailroom_now()))
    and (w.held_until is null or w.held_until <= (select mailroom_now()))
    and (w.due_at <= (select mailroom_now()) or c.event_seq > w.cursor)";

impl SystemStore {
    /// At most so many that have something to deliver and that nobody holds, those first that had no turn for longest. They
    /// are held from now on.
    pub async fn claim_webhooks(&self, me: &str, most: u64, hold: Duration) -> Result<Vec<HeldWebhook>, StoreError> {
        let from = format!(
            "from webhooks w join tenants t on t.id = w.tenant_id left join tenant_counters c on c.tenant_id = w.tenant_id
             where {DUE}"
        );
        // Most of the time there is nothing, and then nothing is written.
        if self.query_one(format!("select 1 {from} limit 1"), vec![]).await?.is_none() {
            return Ok(Vec::new());
        }
        let dialect = self.store.dialect();
        // Who looks at the same time takes others, and neither waits.
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
        failpoint::before(Effect::ClaimWebhooks);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::ClaimWebhooks);
        let held = |row: &Row| Ok(HeldWebhook { tenant: row.get(0)?, id: row.get(1)?, token: row.get(2)? });
        committed.returned(claimed).iter().map(held).collect()
    }

    /// Others may take them at once.
    pub async fn release_webhooks(&self, held: &[HeldWebhook]) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        for HeldWebhook { tenant, id, token } in held {
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

fn webhook(row: &Row) -> Result<Webhook, StoreError> {
    let damaged = |_| StoreError::corrupt("a webhook has settings that nobody can read");
    Ok(Webhook {
        id: row.get(0)?,
        url: row.get(1)?,
        description: row.get(2)?,
        types: serde_json::from_value(row.get(3)?).map_err(damaged)?,
        mailbox_id: row.get(4)?,
        with_backfill: row.get(5)?,
        signing: serde_json::from_value(row.get(6)?).map_err(damaged)?,
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
