//! Delivers events to one webhook in batches, each of which is recorded by one commit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use domain::RandomSource;
use domain::metrics as catalogue;
use domain::{DeliveryId, DeliveryState, SecretId, SecretKind, TenantId, redact_for_log};
use outbound::http::AddressPolicy;
use outbound::{Endpoint, Gateway, Target};
use serde_json::json;
use store::failpoint::Effect;
use store::sql::events::Event;
use store::sql::webhook_deliveries::{DeliveryAttempt, DeliveryBatch, DueDelivery, WebhookHealth};
use store::sql::webhooks::{Webhook, WebhookLease};
use store::{Precondition, StoreError, TenantStore};

use super::send::{SendOutcome, SendResult, WebhookSender};
use super::send_batch::{BatchSender, GatewayRefusal, SendWindow, SentBatch, WebhookTarget};
use super::sign::SigningKey;
use super::{retry_schedule, url};
use crate::Engine;
use crate::credentials::secrets::VaultError;

/// Deliveries per batch.
const MAX_BATCH_DELIVERIES: usize = 100;

/// Retries among them: a webhook with many of those still gets new events.
const MAX_BATCH_RETRIES: usize = 50;

/// Events that are scanned for a batch; the filter may match none of them.
const MAX_SCANNED_EVENTS: u64 = 5000;

/// Batches of one webhook before others get their turn.
const MAX_BATCHES: u32 = 10;

/// The lease of a webhook: longer than a batch takes.
pub(super) const CLAIM_LEASE: Duration = Duration::from_secs(60);

/// Signing keys in memory, which save a query per batch.
const MAX_CACHED_KEYS: usize = 4096;

/// Delivers to webhooks whose lease this process holds. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WebhookDeliverer {
    engine: Engine,
    policy: AddressPolicy,
    sender: BatchSender,
    random: Arc<dyn RandomSource>,
    keys: Arc<Mutex<HashMap<SecretId, SigningKey>>>,
    is_stopping: Arc<AtomicBool>,
}

/// A delivery to be sent.
pub(super) struct DeliveryItem {
    pub(super) id: DeliveryId,
    event_seq: Option<u64>,
    kind: String,
    attempts: u64,
    pub(super) body: Vec<u8>,
    /// It has no row yet, and comes after the cursor of the webhook.
    is_new: bool,
}

/// The deliveries of a batch.
struct BatchPlan {
    items: Vec<DeliveryItem>,
    /// Deliveries whose event was deleted.
    lost: Vec<DeliveryAttempt>,
    /// The cursor after the whole batch.
    cursor: u64,
    is_more: bool,
}

impl WebhookDeliverer {
    pub fn new(engine: Engine, sender: WebhookSender, gateway: Gateway, random: Arc<dyn RandomSource>) -> Self {
        let is_stopping: Arc<AtomicBool> = Arc::default();
        let policy = sender.policy().clone();
        let sender = BatchSender { sender, gateway, store: engine.store.clone(), is_stopping: is_stopping.clone() };
        Self { engine, policy, sender, random, keys: Arc::default(), is_stopping }
    }

    /// Stops starting requests.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn store(&self) -> &store::Store {
        &self.engine.store
    }

    /// Delivers until nothing is left or others should have their turn, and returns whether more may be left. Releases
    /// the lease.
    pub async fn deliver(&self, lease: WebhookLease) -> anyhow::Result<bool> {
        let mut window = SendWindow::default();
        for batch_number in 1..=MAX_BATCHES {
            if !self.deliver_batch(lease, &mut window, batch_number == MAX_BATCHES).await? {
                return Ok(batch_number == MAX_BATCHES);
            }
        }
        Ok(true)
    }

    /// Delivers one batch. Returns whether more is left and the lease still holds.
    async fn deliver_batch(&self, lease: WebhookLease, window: &mut SendWindow, is_last: bool) -> anyhow::Result<bool> {
        let tenant = self.engine.store.tenant(lease.tenant);
        // The webhook or its tenant may have been switched off since the last batch.
        let Some((webhook, newest)) = tenant.find_held_webhook(lease).await? else {
            self.engine.store.system().release_webhooks(&[lease]).await?;
            return Ok(false);
        };
        let is_failing = webhook.failing_since.is_some();
        // One request is enough to see whether it is back.
        let (max_retries, max) = if is_failing { (1, 1) } else { (MAX_BATCH_RETRIES, MAX_BATCH_DELIVERIES) };
        let plan = plan_batch(&tenant, &webhook, newest, max_retries, max).await?;
        let sent = match self.find_target(lease.tenant, &webhook).await? {
            Ok(to) => self.sender.send_all(&to, &plan.items, window).await,
            Err(reason) => {
                let results = plan.items.first().map(|_| unsendable_result(reason)).into_iter().collect();
                SentBatch { results, refusal: None }
            }
        };
        let mut batch = self.evaluate(&webhook, plan, sent);
        let continues = batch.hold.is_some() && !is_last && !self.is_stopping.load(Ordering::Relaxed);
        batch.hold = continues.then_some(CLAIM_LEASE);
        count(&batch);
        let error = match &batch.health {
            WebhookHealth::Failing { why, .. } | WebhookHealth::Gone { why } => Some(redact_for_log(why)),
            WebhookHealth::Unknown | WebhookHealth::PutOff { .. } | WebhookHealth::Healthy { .. } => None,
        };
        let mut unit = tenant.write();
        let disabled = unit.record_deliveries(lease, batch);
        let recorded = unit.commit_at(Effect::RecordDeliveries).await;
        match recorded {
            Ok(committed) => {
                if disabled.is_some_and(|disabled| committed.changed(disabled) > 0) {
                    tracing::warn!(tenant.id = %lease.tenant, webhook.id = %lease.id, error, "webhook disabled");
                }
                Ok(continues)
            }
            // The process that holds the lease now repeats this under the same ids.
            Err(StoreError::Precondition(Precondition::DeliveryTakenOver)) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Returns the target of a webhook, or why it cannot be delivered to.
    async fn find_target(&self, tenant: TenantId, webhook: &Webhook) -> anyhow::Result<Result<WebhookTarget, String>> {
        let url = match url::check(&webhook.url, &self.policy) {
            Ok(url) => url,
            Err(reason) => return Ok(Err(format!("the URL cannot be used: it {reason}"))),
        };
        let now = self.engine.store.clock().now();
        let mut keys = Vec::new();
        for signing in webhook.signing.iter().filter(|signing| signing.until.is_none_or(|until| until > now)) {
            keys.extend(self.key(tenant, signing.id).await?);
        }
        if keys.is_empty() {
            return Ok(Err("the webhook has no secret to sign with".to_owned()));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let target = Target::webhook(tenant, Endpoint::new(url.host_str().unwrap_or_default(), port));
        Ok(Ok(WebhookTarget { url, keys, target }))
    }

    /// Returns a signing key, or `None` if it was replaced meanwhile or cannot be used.
    async fn key(&self, tenant: TenantId, id: SecretId) -> anyhow::Result<Option<SigningKey>> {
        if let Some(key) = self.keys().get(&id) {
            return Ok(Some(key.clone()));
        }
        let opened = self.engine.vault.open_text(tenant, id, SecretKind::WebhookSigning).await;
        let secret = match opened {
            Err(VaultError::Damaged(_)) => None,
            opened => opened.context("opening the secret of a webhook")?,
        };
        let Some(key) = secret.and_then(|secret| SigningKey::parse(secret.expose()).ok()) else { return Ok(None) };
        let mut keys = self.keys();
        if keys.len() >= MAX_CACHED_KEYS {
            keys.clear();
        }
        keys.insert(id, key.clone());
        Ok(Some(key))
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, HashMap<SecretId, SigningKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn evaluate(&self, webhook: &Webhook, plan: BatchPlan, sent: SentBatch) -> DeliveryBatch {
        let SentBatch { results, refusal } = sent;
        let was_failing = webhook.failing_since.is_some();
        let health = match refusal.filter(|_| results.is_empty()) {
            Some(GatewayRefusal { reason, wait }) => {
                WebhookHealth::PutOff { why: reason.sentence(self.engine.store.clock().now()), rest: wait }
            }
            None => self.health(webhook, &results),
        };
        let is_well = matches!(health, WebhookHealth::Unknown | WebhookHealth::Healthy { rest: None });
        let is_whole = results.len() == plan.items.len();
        let mut cursor = webhook.cursor;
        let mut attempts = plan.lost;
        let mut is_held_back = false;
        for (item, result) in plan.items.into_iter().zip(results) {
            if item.is_new && was_failing && !matches!(result.outcome, SendOutcome::Delivered | SendOutcome::Gone) {
                // A probe of a failing webhook: the event stays behind the cursor and costs no row.
                is_held_back = true;
                break;
            }
            if let (true, Some(seq)) = (item.is_new, item.event_seq) {
                cursor = seq;
            }
            attempts.push(self.attempt(item, result));
        }
        if is_whole && !is_held_back {
            cursor = plan.cursor;
        }
        let is_more = plan.is_more || !is_whole;
        DeliveryBatch { attempts, cursor, health, was_failing, hold: (is_more && is_well).then_some(CLAIM_LEASE) }
    }

    fn health(&self, webhook: &Webhook, sent: &[SendResult]) -> WebhookHealth {
        if let Some(gone) = sent.iter().find(|sent| sent.outcome == SendOutcome::Gone) {
            return WebhookHealth::Gone {
                why: format!("the endpoint answered that it is gone ({})", failure_reason(gone)),
            };
        }
        let asked = sent.iter().filter_map(|sent| match sent.outcome {
            SendOutcome::RetryAfter(wait) => Some(retry_schedule::clamp_retry_after(wait)),
            _ => None,
        });
        let asked = asked.max();
        match sent.last() {
            None => WebhookHealth::Unknown,
            Some(_) if sent.iter().any(|sent| sent.outcome == SendOutcome::Delivered) => {
                WebhookHealth::Healthy { rest: asked }
            }
            Some(last) => {
                let rest = retry_schedule::endpoint_rest(webhook.failures + 1, &*self.random);
                WebhookHealth::Failing {
                    why: failure_reason(last),
                    rest: asked.map_or(rest, |asked| asked.max(rest)),
                    too_long: retry_schedule::DISABLE_AFTER,
                }
            }
        }
    }

    fn attempt(&self, item: DeliveryItem, sent: SendResult) -> DeliveryAttempt {
        let DeliveryItem { id, event_seq, kind, attempts, .. } = item;
        let SendResult { outcome, status, answer, took } = sent;
        let attempts = attempts + 1;
        let again_in = match outcome {
            SendOutcome::Delivered | SendOutcome::Gone => None,
            SendOutcome::Failed => retry_schedule::delivery_delay(attempts, &*self.random),
            SendOutcome::RetryAfter(wait) => retry_schedule::delivery_delay(attempts, &*self.random)
                .map(|usual| usual.max(retry_schedule::clamp_retry_after(wait))),
        };
        let state = match (outcome, again_in) {
            (SendOutcome::Delivered, _) => DeliveryState::Delivered,
            (_, Some(_)) => DeliveryState::Waiting,
            (_, None) => DeliveryState::Failed,
        };
        DeliveryAttempt { id, event_seq, kind, state, attempts, retry_in: again_in, status, answer, took }
    }
}

/// Plans a batch: retries first, then new events.
async fn plan_batch(
    tenant: &TenantStore,
    webhook: &Webhook,
    newest: u64,
    max_retries: usize,
    max: usize,
) -> anyhow::Result<BatchPlan> {
    let due = tenant.list_due_deliveries(webhook.id, max_retries as u64).await?;
    let room = max - due.len();
    let is_more = due.len() == max_retries;
    let mut plan = BatchPlan { items: Vec::new(), lost: Vec::new(), cursor: webhook.cursor, is_more };
    for delivery in due {
        match retry_item(webhook, delivery)? {
            Ok(item) => plan.items.push(item),
            Err(lost) => plan.lost.push(lost),
        }
    }
    if room == 0 || webhook.cursor >= newest {
        return Ok(plan);
    }
    let up_to = newest.min(webhook.cursor + MAX_SCANNED_EVENTS);
    let events = tenant.list_events_between(&webhook.filter(), webhook.cursor, up_to, room as u64).await?;
    // Events that are not among them do not match the filter.
    plan.cursor = match events.last() {
        Some(last) if events.len() == room => last.seq,
        // After a restore the next number may be far away.
        None if up_to < newest => tenant.find_next_event(up_to).await?.map_or(newest, |next| next - 1),
        _ => up_to,
    };
    plan.is_more |= plan.cursor < newest;
    for event in events {
        plan.items.push(new_item(webhook, &event)?);
    }
    Ok(plan)
}

fn retry_item(webhook: &Webhook, due: DueDelivery) -> anyhow::Result<Result<DeliveryItem, DeliveryAttempt>> {
    let DueDelivery { id, kind, event_seq, attempts, created_at, event } = due;
    let body = match (&event, event_seq) {
        (Some(event), _) => body(event)?,
        (None, None) => {
            let ping = json!({"type": kind, "timestamp": created_at, "data": {"webhook_id": webhook.id}});
            serde_json::to_vec(&ping)?
        }
        (None, Some(_)) => {
            let answer = Some("the event was deleted".to_owned());
            let state = DeliveryState::Failed;
            let took = Duration::ZERO;
            return Ok(Err(DeliveryAttempt {
                id,
                event_seq,
                kind,
                state,
                attempts,
                retry_in: None,
                status: None,
                answer,
                took,
            }));
        }
    };
    Ok(Ok(DeliveryItem { id, event_seq, kind, attempts, body, is_new: false }))
}

fn new_item(webhook: &Webhook, event: &Event) -> anyhow::Result<DeliveryItem> {
    Ok(DeliveryItem {
        id: DeliveryId::derive(event.at, webhook.id, event.seq),
        event_seq: Some(event.seq),
        kind: event.kind.clone(),
        attempts: 0,
        body: body(event)?,
        is_new: true,
    })
}

/// Returns the body of an event, the same bytes at every attempt.
fn body(event: &Event) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&json!({"type": event.kind, "timestamp": event.at, "data": event}))?)
}

fn failure_reason(result: &SendResult) -> String {
    match (result.status, &result.answer) {
        (Some(status), _) => format!("status {status}"),
        (None, answer) => answer.clone().unwrap_or_default(),
    }
}

fn unsendable_result(reason: String) -> SendResult {
    SendResult { outcome: SendOutcome::Failed, status: None, answer: Some(reason), took: Duration::ZERO }
}

fn count(batch: &DeliveryBatch) {
    for attempt in &batch.attempts {
        metrics::counter!(catalogue::WEBHOOK_DELIVERIES, "outcome" => attempt.state.as_str()).increment(1);
    }
}
