//! Sends requests at a steady rate, whether the server keeps up or not. A response time is measured from the moment at which
//! its request was due: one that waits behind others waits for its user too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use terminal::Failure;
use tokio::sync::{Mutex, mpsc};

use super::client::{ApiServer, HttpConnection};
use super::plan::RequestPlan;

/// How long responses are waited for after the last request is due.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How many requests are due each second, for how long, and over how many connections.
#[derive(Debug, Clone, Copy)]
pub struct LoadRate {
    pub requests_per_second: f64,
    pub seconds: f64,
    pub connections: usize,
}

/// The outcome of one request and its response time.
#[derive(Debug, Clone, Copy)]
pub struct RequestResult {
    pub kind: usize,
    pub took: Duration,
    pub outcome: RequestOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    Answered,
    /// With 429: the rate is above the tenant's limit.
    Refused,
    Failed,
}

/// A request by its number in the plan, and when it is due.
struct DueRequest {
    at: Instant,
    number: usize,
}

pub async fn run(server: &ApiServer, plan: Arc<RequestPlan>, load: LoadRate) -> Result<Vec<RequestResult>, Failure> {
    let total = (load.requests_per_second * load.seconds) as usize;
    let (due, waiting) = mpsc::unbounded_channel();
    let waiting = Arc::new(Mutex::new(waiting));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..load.connections {
        let connection = server.connect().await?;
        clients.spawn(send_requests(server.clone(), connection, plan.clone(), waiting.clone()));
    }
    // A thread, because the runtime's own timers are late by up to a millisecond.
    let pacing = std::thread::spawn(move || send_due_requests(total, load.requests_per_second, &due));
    let deadline = Duration::from_secs_f64(load.seconds) + RESPONSE_TIMEOUT;
    let all = tokio::time::timeout(deadline, clients.join_all()).await;
    let done: Vec<RequestResult> = all.map_err(|_| Failure::problem("the server stopped to answer"))?.concat();
    pacing.join().map_err(|_| Failure::problem("the pacing thread panicked"))?;
    Ok(done)
}

fn send_due_requests(total: usize, rate: f64, due: &mpsc::UnboundedSender<DueRequest>) {
    let begun = Instant::now();
    for number in 0..total {
        let at = begun + Duration::from_secs_f64(number as f64 / rate);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if due.send(DueRequest { at, number }).is_err() {
            return; // all clients have ended
        }
    }
}

async fn send_requests(
    server: ApiServer,
    mut connection: HttpConnection,
    plan: Arc<RequestPlan>,
    waiting: Arc<Mutex<mpsc::UnboundedReceiver<DueRequest>>>,
) -> Vec<RequestResult> {
    let mut done = Vec::new();
    loop {
        let next = waiting.lock().await.recv().await;
        let Some(DueRequest { at, number }) = next else { return done };
        let (kind, request) = plan.request(number);
        let outcome = match connection.send_request(request).await {
            Ok(200) => RequestOutcome::Answered,
            Ok(429) => RequestOutcome::Refused,
            Ok(_) => RequestOutcome::Failed,
            Err(_) => {
                if let Ok(fresh) = server.connect().await {
                    connection = fresh;
                }
                RequestOutcome::Failed
            }
        };
        done.push(RequestResult { kind, took: at.elapsed(), outcome });
    }
}
