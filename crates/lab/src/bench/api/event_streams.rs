//! Many clients that follow the event stream while no event occurs.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use terminal::{Failure, count, note};

use super::client::HttpConnection;
use super::plan::LoadTarget;

/// Connections that are opened at the same time.
const MAX_CONCURRENT_CONNECTS: usize = 32;

/// Streams that could be opened, how long each took to begin, and how many could not.
#[derive(Debug, Default)]
pub struct EventStreams {
    pub streams: Vec<HttpConnection>,
    pub took: Vec<Duration>,
    pub failed: usize,
}

pub async fn open(target: &LoadTarget, clients: usize) -> Result<EventStreams, Failure> {
    note(&format!("  opening {} streams …", count(clients as u64)));
    let requests: Vec<Vec<u8>> = target.keys.iter().map(|key| target.server.get("/v1/events/stream", key)).collect();
    let opening = stream::iter(0..clients).map(|n| {
        let request = &requests[n % requests.len()];
        async move {
            let begun = Instant::now();
            let mut connection = target.server.connect().await?;
            match connection.read_head(request).await? {
                (200, _) => Ok((connection.without_buffer(), begun.elapsed())),
                (status, _) => Err(std::io::Error::other(format!("status {status}"))),
            }
        }
    });
    let mut opening = opening.buffer_unordered(MAX_CONCURRENT_CONNECTS);
    let mut followers = EventStreams::default();
    let mut last = None;
    while let Some(opened) = opening.next().await {
        match opened {
            Ok((connection, took)) => {
                followers.streams.push(connection);
                followers.took.push(took);
            }
            Err(e) => {
                followers.failed += 1;
                last = Some(e);
            }
        }
    }
    match last {
        Some(e) if followers.streams.is_empty() => Err(Failure::problem(format!("no stream could be opened: {e}"))),
        Some(e) => {
            note(&format!("  {} streams could not be opened, the last because of: {e}", followers.failed));
            Ok(followers)
        }
        None => Ok(followers),
    }
}
