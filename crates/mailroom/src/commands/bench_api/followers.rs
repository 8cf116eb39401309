//! Many who follow events to whom nothing is told.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use super::client::Connection;
use super::plan::Target;
use crate::failure::Failure;
use crate::output::{count, tell};

/// Connections that are opened at the same time.
const AT_ONCE: usize = 32;

/// Opened streams, how long each took to begin, and how many did not.
#[derive(Debug, Default)]
pub struct Followers {
    pub streams: Vec<Connection>,
    pub took: Vec<Duration>,
    pub failed: usize,
}

pub async fn open(target: &Target, clients: usize) -> Result<Followers, Failure> {
    tell(&format!("  opening {} streams …", count(clients as u64)));
    let requests: Vec<Vec<u8>> = target.keys.iter().map(|key| target.server.get("/v1/events/stream", key)).collect();
    let opening = stream::iter(0..clients).map(|n| {
        let request = &requests[n % requests.len()];
        async move {
            let begun = Instant::now();
            let mut connection = target.server.connect().await?;
            match connection.begin(request).await? {
                (200, _) => Ok((connection.at_rest(), begun.elapsed())),
                (status, _) => Err(std::io::Error::other(format!("status {status}"))),
            }
        }
    });
    let mut opening = opening.buffer_unordered(AT_ONCE);
    let mut followers = Followers::default();
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
            tell(&format!("  {} streams could not be opened, the last because of: {e}", followers.failed));
            Ok(followers)
        }
        None => Ok(followers),
    }
}
