//! Posts what is due, and tries again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::{Request, Uri};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::super::oauth::subject;
use super::super::spec;
use super::super::world::World;
use super::{Due, Endpoint};
use crate::spec::Side;

/// Pushes under way at the same time.
const AT_ONCE: usize = 64;

/// Whoever does not answer in so long is asked again.
const PATIENCE: Duration = Duration::from_secs(10);

const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Then a push is given up, so that a test without an endpoint ends.
const ATTEMPTS: u32 = 30;

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
        if attempt > 0 {
            let wait = Duration::from_millis(endpoint.retry_ms.saturating_mul(1 << (attempt - 1).min(20)));
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
        }
        let token = token(&world, &endpoint);
        let answered = {
            let _place = places.acquire().await;
            tokio::time::timeout(PATIENCE, post(&endpoint.url, &token, &due.body)).await
        };
        let mut state = world.push.state();
        state.counts.sent += 1;
        match answered {
            Ok(Ok(status)) if ACKS.contains(&status) => {
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

/// The status it was answered with.
async fn post(url: &str, token: &str, body: &Value) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
    let uri: Uri = url.parse()?;
    if uri.scheme_str() != Some("http") {
        return Err("pushes go to http:// only".into());
    }
    let authority = uri.authority().ok_or("no host")?;
    let stream =
        TcpStream::connect((authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80))).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)")
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::from(body.to_string()))?;
    let mut answered = std::pin::pin!(sender.send_request(request));
    let response = tokio::select! {
        response = &mut answered => response,
        // Whoever answers and closes at once ends the connection first; the answer is there all the same.
        _ = connection => answered.await,
    };
    Ok(response?.status().as_u16())
}
