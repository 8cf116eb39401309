//! What one webhook is to be told, in batches, each of which is recorded by one commit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use domain::{DeliveryId, DeliveryState, SecretId, SecretKind, TenantId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jobs::Dice;
use serde_json::json;
use store::failpoint::{self, Effect};
use store::sql::events::Event;
use store::sql::webhook_deliveries::{Batch, DueDelivery, Health, NO_LONGER_DELIVERING, Tried};
use store::sql::webhooks::{HeldWebhook, Webhook};
use store::{StoreError, TenantStore};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::send::{Message, Outcome, Sender, Sent};
use super::sign::SigningKey;
use super::{schedule, url};
use crate::Engine;
use crate::secrets::VaultError;

/// Deliveries that are recorded by one commit.
const BATCH: usize = 100;

/// Of those, what is tried again: who has much of that is told of what is new all the same.
const AGAIN: usize = 50;

/// Events that are looked at for a batch, of which a filter may want none.
const LOOKED_AT: u64 = 5000;

/// Batches until others get their turn.
const TURNS: u32 = 10;

/// Requests to one webhook at the same time: few at first, more as they are answered.
const FIRST_WINDOW: usize = 2;
const LARGEST_WINDOW: usize = 16;

/// After so many failures in a row it is the webhook that fails, and not what it is told.
const PATIENCE: u32 = 3;

/// No request of a batch begins after this, so that a slow webhook is recorded, and given back, in time.
const BEGINNING: Duration = Duration::from_secs(10);

/// How long a webhook is held without a word: longer than a batch takes.
pub(super) const HOLD: Duration = Duration::from_secs(60);

/// A request that takes longer than this is slow, and counts among those.
const SLOW: Duration = Duration::from_secs(1);

/// Requests at the same time of one process. Webhooks that hang soon take only of the second kind.
const QUICK_REQUESTS: usize = 256;
const SLOW_REQUESTS: usize = 256;

/// Secrets that are kept in memory, to save a look at the database for each batch.
const KEPT_KEYS: usize = 4096;

/// Delivers to webhooks that are held. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Courier {
    engine: Engine,
    sender: Sender,
    dice: Arc<dyn Dice>,
    quick: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    keys: Arc<Mutex<HashMap<SecretId, SigningKey>>>,
    is_stopping: Arc<AtomicBool>,
}

/// Something to be sent.
struct Item {
    id: DeliveryId,
    event_seq: Option<u64>,
    kind: String,
    attempts: u64,
    body: Vec<u8>,
    /// It has no delivery yet, but comes after the place of the webhook.
    is_next: bool,
}

/// What a batch is about.
struct Plan {
    items: Vec<Item>,
    /// What it tells of is no more.
    lost: Vec<Tried>,
    /// Where the webhook is when all of it was tried.
    cursor: u64,
    is_more: bool,
}

/// How many requests may be on their way, by what became of those before.
struct Window {
    size: usize,
    failures: u32,
    is_shut: bool,
}

impl Courier {
    pub fn new(engine: Engine, sender: Sender, dice: Arc<dyn Dice>) -> Self {
        Self {
            engine,
            sender,
            dice,
            quick: Arc::new(Semaphore::new(QUICK_REQUESTS)),
            slow: Arc::new(Semaphore::new(SLOW_REQUESTS)),
            keys: Arc::default(),
            is_stopping: Arc::default(),
        }
    }

    /// No request begins any more.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn store(&self) -> &store::Store {
        &self.engine.store
    }

    /// Until there is nothing more, or others should have their turn; then there may be more. The webhook is given back.
    pub async fn deliver(&self, held: HeldWebhook) -> anyhow::Result<bool> {
        let mut window = Window { size: FIRST_WINDOW, failures: 0, is_shut: false };
        for turn in 1..=TURNS {
            if !self.batch(held, &mut window, turn == TURNS).await? {
                return Ok(turn == TURNS);
            }
        }
        Ok(true)
    }

    /// Whether there is more, and the webhook is still held.
    async fn batch(&self, held: HeldWebhook, window: &mut Window, is_last: bool) -> anyhow::Result<bool> {
        let tenant = self.engine.store.tenant(held.tenant);
        // It or its tenant may have been switched off since the last batch.
        let Some((webhook, newest)) = tenant.find_held_webhook(held).await? else {
            self.engine.store.system().release_webhooks(&[held]).await?;
            return Ok(false);
        };
        let is_failing = webhook.failing_since.is_some();
        // One request is enough to see whether it is back.
        let (again, most) = if is_failing { (1, 1) } else { (AGAIN, BATCH) };
        let plan = plan(&tenant, &webhook, newest, again, most).await?;
        let tried = match self.ready(held.tenant, &webhook).await? {
            Ok((url, keys)) => self.send_all(&url, &keys, &plan.items, window).await,
            Err(why) => plan.items.first().map(|_| unsendable(why)).into_iter().collect(),
        };
        let mut batch = self.judge(&webhook, plan, tried);
        let goes_on = batch.hold.is_some() && !is_last && !self.is_stopping.load(Ordering::Relaxed);
        batch.hold = goes_on.then_some(HOLD);
        count(&batch);
        let mut unit = tenant.write();
        unit.record_deliveries(held, batch);
        failpoint::before(Effect::RecordDeliveries);
        let recorded = unit.commit().await;
        failpoint::after(Effect::RecordDeliveries);
        match recorded {
            Ok(_) => Ok(goes_on),
            // Whoever holds it now does the same, under the same ids.
            Err(StoreError::Precondition(NO_LONGER_DELIVERING)) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Where to send it and what signs it, or why that cannot be.
    async fn ready(
        &self,
        tenant: TenantId,
        webhook: &Webhook,
    ) -> anyhow::Result<Result<(reqwest::Url, Vec<SigningKey>), String>> {
        let url = match url::check(&webhook.url, &self.sender.policy) {
            Ok(url) => url,
            Err(why) => return Ok(Err(format!("its URL cannot be used: {why}"))),
        };
        let now = self.engine.store.clock().now();
        let mut keys = Vec::new();
        for signing in webhook.signing.iter().filter(|signing| signing.until.is_none_or(|until| until > now)) {
            keys.extend(self.key(tenant, signing.id).await?);
        }
        if keys.is_empty() {
            return Ok(Err("it has no secret to sign with".to_owned()));
        }
        Ok(Ok((url, keys)))
    }

    /// `None` when it is no more, since it was replaced meanwhile, or cannot be used.
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
        if keys.len() >= KEPT_KEYS {
            keys.clear();
        }
        keys.insert(id, key.clone());
        Ok(Some(key))
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, HashMap<SecretId, SigningKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In their order, though several are on their way at once. Stops early where it is no use, so those that were tried
    /// are the first of all.
    async fn send_all(
        &self,
        url: &reqwest::Url,
        keys: &[SigningKey],
        items: &[Item],
        window: &mut Window,
    ) -> Vec<Sent> {
        let began = Instant::now();
        let mut sent: Vec<Option<Sent>> = vec![None; items.len()];
        let mut on_their_way = FuturesUnordered::new();
        let mut next = 0;
        loop {
            let may_begin = |window: &Window| {
                !window.is_shut && began.elapsed() < BEGINNING && !self.is_stopping.load(Ordering::Relaxed)
            };
            while next < items.len() && on_their_way.len() < window.size && may_begin(window) {
                let message = Message { id: items[next].id, body: items[next].body.clone() };
                let n = next;
                on_their_way.push(async move { (n, self.send(url, keys, message).await) });
                next += 1;
            }
            let Some((n, outcome)) = on_their_way.next().await else { break };
            window.learn(&outcome);
            sent[n] = Some(outcome);
        }
        window.is_shut = false;
        sent.into_iter().map_while(|sent| sent).collect()
    }

    /// Who is slow makes room for those who are not, as long as there are not too many that are.
    async fn send(&self, url: &reqwest::Url, keys: &[SigningKey], message: Message) -> Sent {
        let quick = self.quick.acquire().await;
        let sending = self.sender.send(url, keys, self.engine.store.clock().now(), message);
        tokio::pin!(sending);
        tokio::select! {
            sent = &mut sending => return sent,
            () = sleep(SLOW) => {}
        }
        let _slow = match self.slow.try_acquire() {
            Ok(slow) => {
                drop(quick);
                (None, Some(slow))
            }
            Err(_) => (Some(quick), None),
        };
        sending.await
    }

    fn judge(&self, webhook: &Webhook, plan: Plan, sent: Vec<Sent>) -> Batch {
        let was_failing = webhook.failing_since.is_some();
        let health = self.health(webhook, &sent);
        let is_well = matches!(health, Health::Unknown | Health::Well { rest: None });
        let is_whole = sent.len() == plan.items.len();
        let mut cursor = webhook.cursor;
        let mut tried = plan.lost;
        let mut is_kept_back = false;
        for (item, sent) in plan.items.into_iter().zip(sent) {
            if item.is_next && was_failing && !matches!(sent.outcome, Outcome::Delivered | Outcome::Gone) {
                // A try at whether it is back: what was to be told stays where it is, and costs no row.
                is_kept_back = true;
                break;
            }
            if let (true, Some(seq)) = (item.is_next, item.event_seq) {
                cursor = seq;
            }
            tried.push(self.tried(item, sent));
        }
        if is_whole && !is_kept_back {
            cursor = plan.cursor;
        }
        let is_more = plan.is_more || !is_whole;
        Batch { tried, cursor, health, was_failing, hold: (is_more && is_well).then_some(HOLD) }
    }

    fn health(&self, webhook: &Webhook, sent: &[Sent]) -> Health {
        let why = |sent: &Sent| match (sent.status, &sent.answer) {
            (Some(status), _) => format!("status {status}"),
            (None, answer) => answer.clone().unwrap_or_default(),
        };
        if let Some(gone) = sent.iter().find(|sent| sent.outcome == Outcome::Gone) {
            return Health::Gone { why: format!("it answered that nothing is wanted any more ({})", why(gone)) };
        }
        let asked = sent.iter().filter_map(|sent| match sent.outcome {
            Outcome::RetryAfter(wait) => Some(schedule::retry_after(wait)),
            _ => None,
        });
        let asked = asked.max();
        match sent.last() {
            None => Health::Unknown,
            Some(_) if sent.iter().any(|sent| sent.outcome == Outcome::Delivered) => Health::Well { rest: asked },
            Some(last) => {
                let rest = schedule::rest(webhook.failures + 1, &*self.dice);
                Health::Failing {
                    why: why(last),
                    rest: asked.map_or(rest, |asked| asked.max(rest)),
                    too_long: schedule::TOO_LONG,
                }
            }
        }
    }

    fn tried(&self, item: Item, sent: Sent) -> Tried {
        let Item { id, event_seq, kind, attempts, .. } = item;
        let Sent { outcome, status, answer, took } = sent;
        let attempts = attempts + 1;
        let again_in = match outcome {
            Outcome::Delivered | Outcome::Gone => None,
            Outcome::Failed => schedule::retry(attempts, &*self.dice),
            Outcome::RetryAfter(wait) => {
                schedule::retry(attempts, &*self.dice).map(|usual| usual.max(schedule::retry_after(wait)))
            }
        };
        let state = match (outcome, again_in) {
            (Outcome::Delivered, _) => DeliveryState::Delivered,
            (_, Some(_)) => DeliveryState::Waiting,
            (_, None) => DeliveryState::Failed,
        };
        Tried { id, event_seq, kind, state, attempts, again_in, status, answer, took }
    }
}

impl Window {
    fn learn(&mut self, sent: &Sent) {
        match sent.outcome {
            Outcome::Delivered => {
                self.failures = 0;
                if sent.took < SLOW {
                    self.size = (self.size + 1).min(LARGEST_WINDOW);
                }
            }
            Outcome::Failed => {
                self.size = 1;
                self.failures += 1;
                self.is_shut |= self.failures >= PATIENCE;
            }
            Outcome::Gone | Outcome::RetryAfter(_) => {
                self.size = 1;
                self.is_shut = true;
            }
        }
    }
}

/// What is to be tried again, and then what is new.
async fn plan(
    tenant: &TenantStore,
    webhook: &Webhook,
    newest: u64,
    most_again: usize,
    most: usize,
) -> anyhow::Result<Plan> {
    let due = tenant.list_due_deliveries(webhook.id, most_again as u64).await?;
    let room = most - due.len();
    let is_more = due.len() == most_again;
    let mut plan = Plan { items: Vec::new(), lost: Vec::new(), cursor: webhook.cursor, is_more };
    for delivery in due {
        match again(webhook, delivery)? {
            Ok(item) => plan.items.push(item),
            Err(lost) => plan.lost.push(lost),
        }
    }
    if room == 0 || webhook.cursor >= newest {
        return Ok(plan);
    }
    let up_to = newest.min(webhook.cursor + LOOKED_AT);
    let events = tenant.list_events_between(&webhook.filter(), webhook.cursor, up_to, room as u64).await?;
    // What is not among them is not wanted.
    plan.cursor = match events.last() {
        Some(last) if events.len() == room => last.seq,
        _ => up_to,
    };
    plan.is_more |= plan.cursor < newest;
    for event in events {
        plan.items.push(next(webhook, &event)?);
    }
    Ok(plan)
}

fn again(webhook: &Webhook, due: DueDelivery) -> anyhow::Result<Result<Item, Tried>> {
    let DueDelivery { id, kind, event_seq, attempts, created_at, event } = due;
    let body = match (&event, event_seq) {
        (Some(event), _) => body(event)?,
        (None, None) => {
            let ping = json!({"type": kind, "timestamp": created_at, "data": {"webhook_id": webhook.id}});
            serde_json::to_vec(&ping)?
        }
        (None, Some(_)) => {
            let answer = Some("the event is no more".to_owned());
            let state = DeliveryState::Failed;
            let took = Duration::ZERO;
            return Ok(Err(Tried { id, event_seq, kind, state, attempts, again_in: None, status: None, answer, took }));
        }
    };
    Ok(Ok(Item { id, event_seq, kind, attempts, body, is_next: false }))
}

fn next(webhook: &Webhook, event: &Event) -> anyhow::Result<Item> {
    Ok(Item {
        id: DeliveryId::derive(event.at, webhook.id, event.seq),
        event_seq: Some(event.seq),
        kind: event.kind.clone(),
        attempts: 0,
        body: body(event)?,
        is_next: true,
    })
}

/// The same bytes at every try.
fn body(event: &Event) -> anyhow::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&json!({"type": event.kind, "timestamp": event.at, "data": event}))?)
}

fn unsendable(why: String) -> Sent {
    Sent { outcome: Outcome::Failed, status: None, answer: Some(why), took: Duration::ZERO }
}

fn count(batch: &Batch) {
    for tried in &batch.tried {
        metrics::counter!("mailroom_webhook_deliveries_total", "outcome" => tried.state.as_str()).increment(1);
    }
}
