//! Bodies that know when they are late, and that hold something until they have been sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

/// The client took too long to send it.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct TooSlow;

/// What a client sends, for as long as we wait for it.
struct Timed {
    body: Body,
    /// Begins with the first look, for that is when a body is wanted.
    late: Option<Pin<Box<Sleep>>>,
    patience: Duration,
}

pub(super) fn timed(body: Body, patience: Duration) -> Body {
    Body::new(Timed { body, late: None, patience })
}

impl http_body::Body for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let patience = self.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(late.as_mut().poll(cx));
        Poll::Ready(Some(Err(axum::Error::new(TooSlow))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What we send; `kept` is let go when the last byte is, or nobody wants it any more.
struct Holding<T> {
    body: Body,
    kept: Option<T>,
}

pub(super) fn holding<T: Send + Unpin + 'static>(body: Body, kept: T) -> Body {
    Body::new(Holding { body, kept: Some(kept) })
}

impl<T: Unpin> http_body::Body for Holding<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.kept = None;
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
    async fn a_body_that_does_not_end_is_late_and_one_that_does_is_whole() {
        let patience = Duration::from_secs(30);
        let piece = |text: &'static str| Ok::<_, axum::Error>(Bytes::from(text));
        let endless = stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Some((Ok::<_, axum::Error>(Bytes::from("x")), ()))
        });

        let late = to_bytes(timed(Body::from_stream(endless), patience), usize::MAX).await.unwrap_err();
        let whole = to_bytes(timed(Body::from_stream(stream::iter([piece("a"), piece("b")])), patience), 9).await;

        assert!(crate::edge::was_too_slow(&late), "{late:?}");
        assert_eq!(whole.unwrap(), "ab");
    }

    #[tokio::test]
    async fn what_is_kept_goes_with_the_last_byte_or_with_the_reader() {
        let kept = Arc::new(());
        let bytes = to_bytes(holding(Body::from("abc"), kept.clone()), 9).await.unwrap();
        assert_eq!((bytes.as_ref(), Arc::strong_count(&kept)), (b"abc".as_slice(), 1));
        drop(holding(Body::from("abc"), kept.clone()));
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
