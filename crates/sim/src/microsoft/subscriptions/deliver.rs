//! Posts what is due, tries again, and asks whether an address wants to be told at all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header::CONTENT_TYPE;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::spec;
use super::super::world::World;
use super::Due;
use crate::form::encode;
use crate::push::{AT_ONCE, ATTEMPTS, PATIENCE, post, wait_before};
use crate::spec::Side;

/// Whoever takes longer is slow.
const SLOW: Duration = Duration::from_secs(3);

/// Sends whatever is published, until it is dropped.
pub async fn run(world: Arc<World>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut under_way = JoinSet::new();
    loop {
        let due: Vec<Due> = world.subscriptions.state().queue.drain(..).collect();
        for due in due {
            under_way.spawn(deliver(Arc::clone(&world), due, Arc::clone(&places)));
        }
        tokio::select! {
            () = world.subscriptions.wake.notified() => {}
            Some(_) = under_way.join_next() => {}
        }
    }
}

async fn deliver(world: Arc<World>, due: Due, places: Arc<Semaphore>) {
    tokio::time::sleep(Duration::from_millis(due.delay_ms)).await;
    if let Err(why) = spec::graph().check("microsoft.graph.changeNotificationCollection", &due.body) {
        world.violations.add(Side::Push, "notify", &why);
    }
    let mut is_acked = false;
    for attempt in 0..ATTEMPTS {
        tokio::time::sleep(wait_before(attempt, world.subscriptions.settings().retry_ms)).await;
        let began = Instant::now();
        let answered = {
            let _place = places.acquire().await;
            let fields = [(CONTENT_TYPE, "application/json; charset=utf-8")];
            tokio::time::timeout(PATIENCE, post(&due.url, &fields, due.body.to_string())).await
        };
        let mut state = world.subscriptions.state();
        state.counts.sent += 1;
        match answered {
            Ok(Ok(posted)) if (200..300).contains(&posted.status) => {
                state.counts.acked += 1;
                state.counts.slow += u64::from(began.elapsed() > SLOW);
                is_acked = true;
                break;
            }
            Ok(Ok(_)) => state.counts.refused += 1,
            Ok(Err(_)) | Err(_) => state.counts.failed += 1,
        }
    }
    let mut state = world.subscriptions.state();
    state.counts.pending -= 1;
    state.counts.abandoned += u64::from(!is_acked);
}

/// Whether the address says exactly what it is told to, in time.
pub async fn validate(world: &World, url: &str) -> Result<(), String> {
    let request = world.subscriptions.guid();
    let token = format!("Validation: Testing client application reachability for subscription Request-Id: {request}");
    let joint = if url.contains('?') { '&' } else { '?' };
    // As Graph writes it: a plus stands for a space.
    let address = format!("{url}{joint}validationToken={}", encode(&token).replace("%20", "+"));
    let fields = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
    let answered = tokio::time::timeout(PATIENCE, post(&address, &fields, "")).await;
    match answered {
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
