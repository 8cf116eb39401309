//! Bodies of answers, whole or spoilt on the way.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;

use crate::http::Cut;

/// What happens to a body on its way.
#[derive(Debug, Clone, Default)]
pub struct Spoilt {
    /// The connection ends in the middle.
    pub is_cut: bool,
    /// So many bytes, then so long nothing, and so on.
    pub slow: Option<(usize, Duration)>,
}

/// The pieces one after the other, unless they are cut short or slowed down.
pub fn respond(mut pieces: Vec<Bytes>, spoilt: &Spoilt) -> Response {
    if spoilt.is_cut {
        let half = pieces.iter().map(Bytes::len).sum::<usize>() / 2;
        let mut halves = Vec::new();
        let mut left = half;
        for piece in pieces {
            let taken = piece.len().min(left);
            left -= taken;
            halves.push(Ok(piece.slice(..taken)));
        }
        halves.push(Err(Cut::Closed));
        return Response::new(Body::from_stream(stream::iter(halves)));
    }
    if let Some((bytes, pause)) = spoilt.slow {
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
