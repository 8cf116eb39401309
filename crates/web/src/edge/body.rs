//! Body wrappers: one with a timeout, and one that keeps a guard alive until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

/// The client took too long to send the request body.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct BodyTimeout;

/// Request body that must arrive within a timeout.
struct TimedBody {
    body: Body,
    /// Starts with the first poll: that is when a handler asks for the body.
    deadline: Option<Pin<Box<Sleep>>>,
    timeout: Duration,
}

pub(super) fn with_timeout(body: Body, timeout: Duration) -> Body {
    Body::new(TimedBody { body, deadline: None, timeout })
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Some(Err(axum::Error::new(BodyTimeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Response body that drops `guard` with its last byte, or when the client goes away.
struct GuardedBody<T> {
    body: Body,
    guard: Option<T>,
}

pub(super) fn with_guard<T: Send + Unpin + 'static>(body: Body, guard: T) -> Body {
    Body::new(GuardedBody { body, guard: Some(guard) })
}

impl<T: Unpin> http_body::Body for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.guard = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use futures_util::stream;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn endless_body_times_out() {
        let timeout = Duration::from_secs(30);
        let piece = |text: &'static str| Ok::<_, axum::Error>(Bytes::from(text));
        let endless = stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Some((Ok::<_, axum::Error>(Bytes::from("x")), ()))
        });

        let deadline = to_bytes(with_timeout(Body::from_stream(endless), timeout), usize::MAX).await.unwrap_err();
        let whole = to_bytes(with_timeout(Body::from_stream(stream::iter([piece("a"), piece("b")])), timeout), 9).await;

        assert!(crate::edge::is_body_timeout(&deadline), "{deadline:?}");
        assert_eq!(whole.unwrap(), "ab");
    }

    #[tokio::test]
    async fn guard_is_dropped_with_the_last_byte_or_the_body() {
        let guard = Arc::new(());
        let bytes = to_bytes(with_guard(Body::from("abc"), guard.clone()), 9).await.unwrap();
        assert_eq!((bytes.as_ref(), Arc::strong_count(&guard)), (b"abc".as_slice(), 1));
        drop(with_guard(Body::from("abc"), guard.clone()));
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
