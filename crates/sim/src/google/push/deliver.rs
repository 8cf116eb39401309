//! Posts what is due, and tries again.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::oauth::subject;
use super::super::spec;
use super::super::world::World;
use super::{Due, Endpoint};
use crate::push::{AT_ONCE, ATTEMPTS, PATIENCE, post, wait_before};
use crate::spec::Side;

/// Half of how long a token is good for.
const TOKEN_MS: i64 = 30 * 60_000;

/// What counts as taken.
const ACKS: [u16; 5] = [102, 200, 201, 202, 204];

/// Sends whatever is published, until it is dropped.
pub async fn run(world: Arc<World>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut under_way = JoinSet::new();
    loop {
        let due: Vec<Due> = world.push.state().queue.drain(..).collect();
        for due in due {
            under_way.spawn(deliver(Arc::clone(&world), due, Arc::clone(&places)));
        }
        tokio::select! {
            () = world.push.wake.notified() => {}
            Some(_) = under_way.join_next() => {}
        }
    }
}

async fn deliver(world: Arc<World>, due: Due, places: Arc<Semaphore>) {
    tokio::time::sleep(Duration::from_millis(due.delay_ms)).await;
    if let Err(why) = spec::check_push(&due.body) {
        world.violations.add(Side::Push, "push", &why);
    }
    let mut is_acked = false;
    for attempt in 0..ATTEMPTS {
        let Some(endpoint) = world.push.endpoint() else { break };
        tokio::time::sleep(wait_before(attempt, endpoint.retry_ms)).await;
        let authorization = format!("Bearer {}", token(&world, &endpoint));
        let fields = [
            (CONTENT_TYPE, "application/json"),
            (USER_AGENT, "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)"),
            (AUTHORIZATION, authorization.as_str()),
        ];
        let answered = {
            let _place = places.acquire().await;
            tokio::time::timeout(PATIENCE, post(&endpoint.url, &fields, due.body.to_string())).await
        };
        let mut state = world.push.state();
        state.counts.sent += 1;
        match answered {
            Ok(Ok(posted)) if ACKS.contains(&posted.status) => {
                state.counts.acked += 1;
                is_acked = true;
                break;
            }
            Ok(Ok(_)) => state.counts.refused += 1,
            Ok(Err(_)) | Err(_) => state.counts.failed += 1,
        }
    }
    let mut state = world.push.state();
    state.counts.pending -= 1;
    state.counts.abandoned += u64::from(!is_acked);
}

fn token(world: &World, endpoint: &Endpoint) -> String {
    let now_ms = world.now_ms();
    let audience = endpoint.audience.as_ref().unwrap_or(&endpoint.url);
    let email = &endpoint.service_account_email;
    let purpose = format!("{audience} {email} {}", world.oauth.key_id());
    if let Some((of, until_ms, token)) = &world.push.state().token
        && *of == purpose
        && (*until_ms - TOKEN_MS..*until_ms).contains(&now_ms)
    {
        return token.clone();
    }
    let now = now_ms / 1_000;
    let token = world.oauth.sign(&json!({
        "iss": "https://accounts.google.com", "aud": audience, "azp": subject(email), "sub": subject(email),
        "email": email, "email_verified": true, "iat": now, "exp": now + 3_600,
    }));
    world.push.state().token = Some((purpose, now_ms + TOKEN_MS, token.clone()));
    token
}
