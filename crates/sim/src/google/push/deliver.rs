//! Delivers queued pushes, with retries.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use serde_json::json;
use tokio::sync::Semaphore;

use super::super::oauth::subject;
use super::super::spec;
use super::super::world::GoogleWorld;
use super::{PendingPush, PushEndpoint};
use crate::push_delivery::{MAX_POST_ATTEMPTS, POST_TIMEOUT, post, retry_delay, run_deliveries};
use crate::spec::Side;

/// How long a push token is reused: half of its lifetime.
const TOKEN_REUSE_MS: i64 = 30 * 60_000;

/// Statuses that acknowledge a push.
const ACK_STATUSES: [u16; 5] = [102, 200, 201, 202, 204];

/// Delivers queued pushes until the task is dropped.
pub async fn run(world: Arc<GoogleWorld>) {
    let queue = &world.provider.push;
    run_deliveries(
        &queue.wake,
        || queue.state().queue.drain(..).collect(),
        |push, permits| deliver(Arc::clone(&world), push, permits),
    )
    .await;
}

async fn deliver(world: Arc<GoogleWorld>, push: PendingPush, permits: Arc<Semaphore>) {
    tokio::time::sleep(Duration::from_millis(push.delay_ms)).await;
    if let Err(why) = spec::check_push(&push.body) {
        world.violations.add(Side::Push, "push", &why);
    }
    let mut is_acked = false;
    for attempt in 0..MAX_POST_ATTEMPTS {
        let Some(endpoint) = world.provider.push.endpoint() else { break };
        tokio::time::sleep(retry_delay(attempt, endpoint.retry_ms)).await;
        let authorization = format!("Bearer {}", token(&world, &endpoint));
        let fields = [
            (CONTENT_TYPE, "application/json"),
            (USER_AGENT, "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)"),
            (AUTHORIZATION, authorization.as_str()),
        ];
        let reply = {
            let _permit = permits.acquire().await;
            tokio::time::timeout(POST_TIMEOUT, post(&endpoint.url, &fields, push.body.to_string())).await
        };
        let mut state = world.provider.push.state();
        state.counts.sent += 1;
        match reply {
            Ok(Ok(posted)) if ACK_STATUSES.contains(&posted.status) => {
                state.counts.acked += 1;
                is_acked = true;
                break;
            }
            Ok(Ok(_)) => state.counts.refused += 1,
            Ok(Err(_)) | Err(_) => state.counts.failed += 1,
        }
    }
    let mut state = world.provider.push.state();
    state.counts.pending -= 1;
    state.counts.abandoned += u64::from(!is_acked);
}

fn token(world: &GoogleWorld, endpoint: &PushEndpoint) -> String {
    let now_ms = world.now_ms();
    let audience = endpoint.audience.as_ref().unwrap_or(&endpoint.url);
    let email = &endpoint.service_account_email;
    let purpose = format!("{audience} {email} {}", world.provider.oauth.key_id());
    if let Some((of, until_ms, token)) = &world.provider.push.state().token
        && *of == purpose
        && (*until_ms - TOKEN_REUSE_MS..*until_ms).contains(&now_ms)
    {
        return token.clone();
    }
    let now = now_ms / 1_000;
    let token = world.provider.oauth.sign(&json!({
        "iss": "https://accounts.google.com", "aud": audience, "azp": subject(email), "sub": subject(email),
        "email": email, "email_verified": true, "iat": now, "exp": now + 3_600,
    }));
    world.provider.push.state().token = Some((purpose, now_ms + TOKEN_REUSE_MS, token.clone()));
    token
}
