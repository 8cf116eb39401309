//! Delivers queued notifications, with retries, and validates notification URLs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header::CONTENT_TYPE;
use tokio::sync::Semaphore;

use super::super::spec;
use super::super::world::MicrosoftWorld;
use super::PendingNotification;
use crate::form::encode;
use crate::push_delivery::{MAX_POST_ATTEMPTS, POST_TIMEOUT, post, retry_delay, run_deliveries};
use crate::spec::Side;

/// The response time above which an acknowledgement counts as slow.
const SLOW_ACK_AFTER: Duration = Duration::from_secs(3);

/// Delivers queued notifications until the task is dropped.
pub async fn run(world: Arc<MicrosoftWorld>) {
    let queue = &world.provider.subscriptions;
    run_deliveries(
        &queue.wake,
        || queue.state().queue.drain(..).collect(),
        |notification, permits| deliver(Arc::clone(&world), notification, permits),
    )
    .await;
}

async fn deliver(world: Arc<MicrosoftWorld>, notification: PendingNotification, permits: Arc<Semaphore>) {
    tokio::time::sleep(Duration::from_millis(notification.delay_ms)).await;
    if let Err(why) = spec::graph().check("microsoft.graph.changeNotificationCollection", &notification.body) {
        world.violations.add(Side::Push, "notify", &why);
    }
    let mut is_acked = false;
    for attempt in 0..MAX_POST_ATTEMPTS {
        tokio::time::sleep(retry_delay(attempt, world.provider.subscriptions.settings().retry_ms)).await;
        let began = Instant::now();
        let reply = {
            let _permit = permits.acquire().await;
            let fields = [(CONTENT_TYPE, "application/json; charset=utf-8")];
            tokio::time::timeout(POST_TIMEOUT, post(&notification.url, &fields, notification.body.to_string())).await
        };
        let mut state = world.provider.subscriptions.state();
        state.counts.sent += 1;
        match reply {
            Ok(Ok(posted)) if (200..300).contains(&posted.status) => {
                state.counts.acked += 1;
                state.counts.slow += u64::from(began.elapsed() > SLOW_ACK_AFTER);
                is_acked = true;
                break;
            }
            Ok(Ok(_)) => state.counts.refused += 1,
            Ok(Err(_)) | Err(_) => state.counts.failed += 1,
        }
    }
    let mut state = world.provider.subscriptions.state();
    state.counts.pending -= 1;
    state.counts.abandoned += u64::from(!is_acked);
}

/// Validates a notification URL: it must echo the token in time.
pub async fn validate(world: &MicrosoftWorld, url: &str) -> Result<(), String> {
    let request = world.provider.subscriptions.guid();
    let token = format!("Validation: Testing client application reachability for subscription Request-Id: {request}");
    let joint = if url.contains('?') { '&' } else { '?' };
    // As Graph writes it: a plus stands for a space.
    let address = format!("{url}{joint}validationToken={}", encode(&token).replace("%20", "+"));
    let fields = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
    let reply = tokio::time::timeout(POST_TIMEOUT, post(&address, &fields, "")).await;
    match reply {
        Err(_) => Err("Subscription validation request timed out.".to_owned()),
        Ok(Err(e)) => Err(format!("Subscription validation request failed. {e}")),
        Ok(Ok(posted)) if posted.status != 200 => {
            Err(format!("Subscription validation request failed. HTTP status code is '{}'.", posted.status))
        }
        Ok(Ok(posted)) if !posted.content_type.to_ascii_lowercase().starts_with("text/plain") => {
            Err(format!("Subscription validation request failed. The content type is {:?}.", posted.content_type))
        }
        Ok(Ok(posted)) if posted.body != token.as_bytes() => {
            Err("Subscription validation request failed. Response must exactly match validationToken query parameter."
                .to_owned())
        }
        Ok(Ok(_)) => Ok(()),
    }
}
