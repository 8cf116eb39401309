//! Sends the deliveries of a batch, several at once, through the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::ConnectorError;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use outbound::http::Url;
use outbound::{Gateway, LimitReason, Target};
use store::Store;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::deliver::DeliveryItem;
use super::send::{SendOutcome, SendResult, WebhookMessage, WebhookSender};
use super::sign::SigningKey;

/// Requests to one webhook at the same time: few at first, more as they succeed.
const INITIAL_WINDOW: usize = 2;
const MAX_WINDOW: usize = 16;

/// Failures in a row after which the webhook itself is failing, not a single delivery.
const MAX_FAILURES_IN_ROW: u32 = 3;

/// No request of a batch starts after this, so that a slow batch is recorded, and its lease released, in time.
const MAX_BATCH_START: Duration = Duration::from_secs(10);

/// A request that takes longer is slow: its webhook gets no more of them at once.
const SLOW_REQUEST: Duration = Duration::from_secs(1);

/// How soon a request is tried again that found no permit.
const PERMIT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Where a webhook's requests go, and what signs them.
pub(super) struct WebhookTarget {
    pub url: Url,
    pub keys: Vec<SigningKey>,
    pub target: Target,
}

/// The results of the first items of a batch.
pub(super) struct SentBatch {
    pub results: Vec<SendResult>,
    /// Why the next one was not sent, if the gateway refused it.
    pub refusal: Option<GatewayRefusal>,
}

/// No request may be made for so long.
pub(super) struct GatewayRefusal {
    pub reason: LimitReason,
    pub wait: Duration,
}

/// Held by the item of a batch that is admitted next.
#[derive(Debug, Default)]
struct AdmissionTurn {
    /// An item was refused, so none after it is sent.
    is_over: bool,
}

/// Sends requests until the process stops. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct BatchSender {
    pub sender: WebhookSender,
    pub gateway: Gateway,
    pub store: Store,
    pub is_stopping: Arc<AtomicBool>,
}

/// How many requests may be in flight, by the results of those before.
pub(super) struct SendWindow {
    size: usize,
    failures: u32,
    is_closed: bool,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self { size: INITIAL_WINDOW, failures: 0, is_closed: false }
    }
}

impl BatchSender {
    /// Sends items in order, several at once. Stops early where it is of no use, so the results are those of the first
    /// items.
    pub async fn send_all(&self, to: &WebhookTarget, items: &[DeliveryItem], window: &mut SendWindow) -> SentBatch {
        let began = Instant::now();
        let turn = Mutex::new(AdmissionTurn::default());
        let mut sent: Vec<Option<SendResult>> = vec![None; items.len()];
        let mut refusal = None;
        let mut in_flight = FuturesUnordered::new();
        let mut next = 0;
        loop {
            while next < items.len() && in_flight.len() < window.size && self.may_start(window, began) {
                let message = WebhookMessage { id: items[next].id, body: items[next].body.clone() };
                let n = next;
                let turn = &turn;
                in_flight.push(async move { (n, self.send(to, message, began, turn).await) });
                next += 1;
            }
            let Some((n, outcome)) = in_flight.next().await else { break };
            match outcome {
                Ok(outcome) => {
                    window.record_result(&outcome);
                    sent[n] = Some(outcome);
                }
                Err(refused) => {
                    window.is_closed = true;
                    refusal = refusal.or(refused);
                }
            }
        }
        window.is_closed = false;
        SentBatch { results: sent.into_iter().map_while(|sent| sent).collect(), refusal }
    }

    fn may_start(&self, window: &SendWindow, began: Instant) -> bool {
        !window.is_closed && began.elapsed() < MAX_BATCH_START && !self.is_stopping.load(Ordering::Relaxed)
    }

    /// Sends a request once the gateway has a permit for it and for those before it. Fails if none comes free in the time
    /// of the batch, if the server is not to be called now, or if the process stops.
    async fn send(
        &self,
        to: &WebhookTarget,
        message: WebhookMessage,
        began: Instant,
        turn: &Mutex<AdmissionTurn>,
    ) -> Result<SendResult, Option<GatewayRefusal>> {
        // In the order of the items: what is sent behind one that was refused would be sent again.
        let mut turn = Some(turn.lock().await);
        if turn.as_ref().is_some_and(|turn| turn.is_over) {
            return Err(None);
        }
        loop {
            let mut sent = None;
            let request = async {
                drop(turn.take());
                let now = self.store.clock().now();
                let result = self.sender.send(&to.url, &to.keys, now, message.clone()).await;
                let outcome = result.call_outcome();
                sent = Some(result);
                outcome
            };
            let outcome = self.gateway.make(&to.target, Box::pin(request)).await;
            if let Some(sent) = sent {
                return Ok(sent);
            }
            let wait = match outcome {
                Err(ConnectorError::RateLimited(wait)) => wait,
                _ => PERMIT_RETRY_DELAY,
            };
            let reason = self.gateway.wait_reason(&to.target);
            let is_closed = matches!(reason, LimitReason::BreakerOpen { .. });
            let is_stopping = self.is_stopping.load(Ordering::Relaxed);
            if is_closed || is_stopping || began.elapsed() >= MAX_BATCH_START {
                if let Some(turn) = &mut turn {
                    turn.is_over = true;
                }
                return Err((!is_stopping).then_some(GatewayRefusal { reason, wait }));
            }
            sleep(PERMIT_RETRY_DELAY).await;
        }
    }
}

impl SendWindow {
    fn record_result(&mut self, sent: &SendResult) {
        match sent.outcome {
            SendOutcome::Delivered => {
                self.failures = 0;
                if sent.took < SLOW_REQUEST {
                    self.size = (self.size + 1).min(MAX_WINDOW);
                }
            }
            SendOutcome::Failed => {
                self.size = 1;
                self.failures += 1;
                self.is_closed |= self.failures >= MAX_FAILURES_IN_ROW;
            }
            SendOutcome::Gone | SendOutcome::RetryAfter(_) => {
                self.size = 1;
                self.is_closed = true;
            }
        }
    }
}
