//! Writes response bodies, and damages them on purpose: cut short or slowed down.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;

use crate::http::ConnectionCut;

/// The damage done to a response body on its way to the client.
#[derive(Debug, Clone, Copy, Default)]
pub struct BodyDamage {
    /// The connection closes after half of the body.
    pub is_cut: bool,
    /// A chunk size in bytes and the pause after each chunk.
    pub slow: Option<(usize, Duration)>,
}

/// Builds a response that sends the pieces in order, damaged if `damage` asks for it.
pub fn respond(mut pieces: Vec<Bytes>, damage: &BodyDamage) -> Response {
    if damage.is_cut {
        let half = pieces.iter().map(Bytes::len).sum::<usize>() / 2;
        let mut halves = Vec::new();
        let mut left = half;
        for piece in pieces {
            let taken = piece.len().min(left);
            left -= taken;
            halves.push(Ok(piece.slice(..taken)));
        }
        halves.push(Err(ConnectionCut::Closed));
        return Response::new(Body::from_stream(stream::iter(halves)));
    }
    if let Some((bytes, pause)) = damage.slow {
        return slow(Bytes::from(pieces.concat()), bytes.max(1), pause);
    }
    match pieces.len() {
        1 => Response::new(Body::from(pieces.swap_remove(0))),
        _ => Response::new(Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)))),
    }
}

fn slow(whole: Bytes, bytes: usize, pause: Duration) -> Response {
    let drops = stream::unfold(whole, move |mut left| async move {
        if left.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let next = left.split_to(bytes.min(left.len()));
        Some((Ok::<_, Infallible>(next), left))
    });
    Response::new(Body::from_stream(drops))
}
