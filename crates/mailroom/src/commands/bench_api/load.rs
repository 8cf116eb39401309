//! Requests at a steady rate, whether the server keeps up or not. How long one took is counted from the moment at which
//! it was due: one that waits behind others waits for its user too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, mpsc};

use super::client::{Connection, Server};
use super::plan::Plan;
use crate::failure::Failure;

/// After the last request is due, this long is waited for answers; what comes later counts as an error.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub rate: f64,
    pub seconds: f64,
    pub connections: usize,
}

/// What became of one request.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub kind: usize,
    pub took: Duration,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// With 429: the server says that it is too much.
    Refused,
    Failed,
}

struct Due {
    at: Instant,
    number: usize,
}

pub async fn run(server: &Server, plan: Arc<Plan>, pace: Pace) -> Result<Vec<Done>, Failure> {
    let total = (pace.rate * pace.seconds) as usize;
    let (due, waiting) = mpsc::unbounded_channel();
    let waiting = Arc::new(Mutex::new(waiting));
    let mut askers = tokio::task::JoinSet::new();
    for _ in 0..pace.connections {
        let connection = server.connect().await?;
        askers.spawn(ask(server.clone(), connection, plan.clone(), waiting.clone()));
    }
    // A thread, because the runtime's own timers are late by up to a millisecond.
    let pacing = std::thread::spawn(move || pace_out(total, pace.rate, &due));
    let deadline = Duration::from_secs_f64(pace.seconds) + PATIENCE;
    let all = tokio::time::timeout(deadline, askers.join_all()).await;
    let done: Vec<Done> = all.map_err(|_| Failure::problem("the server stopped to answer"))?.concat();
    pacing.join().map_err(|_| Failure::problem("the pacing thread panicked"))?;
    Ok(done)
}

fn pace_out(total: usize, rate: f64, due: &mpsc::UnboundedSender<Due>) {
    let begun = Instant::now();
    for number in 0..total {
        let at = begun + Duration::from_secs_f64(number as f64 / rate);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if due.send(Due { at, number }).is_err() {
            return; // nobody asks any more
        }
    }
}

async fn ask(
    server: Server,
    mut connection: Connection,
    plan: Arc<Plan>,
    waiting: Arc<Mutex<mpsc::UnboundedReceiver<Due>>>,
) -> Vec<Done> {
    let mut done = Vec::new();
    loop {
        let next = waiting.lock().await.recv().await;
        let Some(Due { at, number }) = next else { return done };
        let (kind, request) = plan.request(number);
        let outcome = match connection.ask(request).await {
            Ok(200) => Outcome::Answered,
            Ok(429) => Outcome::Refused,
            Ok(_) => Outcome::Failed,
            Err(_) => {
                if let Ok(fresh) = server.connect().await {
                    connection = fresh;
                }
                Outcome::Failed
            }
        };
        done.push(Done { kind, took: at.elapsed(), outcome });
    }
}
