//! A connection, and for how long we wait for whoever is at its other end.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::settings::Patience;

/// What a connection is doing.
#[derive(Debug)]
pub(super) struct Activity {
    patience: Patience,
    state: Mutex<State>,
    /// That there is less time than was thought.
    sooner: Notify,
}

#[derive(Debug)]
struct State {
    /// Requests that are not answered to the last byte.
    open: usize,
    /// Without one: since when it waits, and whether the head of the next has begun.
    since: Instant,
    is_reading_head: bool,
    /// Whose frames between requests are no heads.
    is_http2: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again then.
    Wait(Instant),
    /// Nobody wants anything any more.
    Idle,
    /// A head that does not end.
    TooSlow,
}

impl Activity {
    /// The first head is due at once.
    pub fn begin(patience: Patience) -> Arc<Self> {
        let state = State { open: 0, since: Instant::now(), is_reading_head: true, is_http2: false };
        Arc::new(Self { patience, state: Mutex::new(state), sooner: Notify::new() })
    }

    /// A head is complete; the request goes on until this is dropped.
    pub fn request(self: &Arc<Self>, is_http2: bool) -> Request {
        let mut state = self.state();
        state.open += 1;
        state.is_reading_head = false;
        state.is_http2 = is_http2;
        Request(self.clone())
    }

    pub fn verdict(&self, now: Instant) -> Verdict {
        let state = self.state();
        let (due, otherwise) = match &*state {
            State { open: 1.., .. } => return Verdict::Wait(now + self.patience.idle),
            State { is_reading_head: true, since, .. } => (*since + self.patience.head, Verdict::TooSlow),
            State { since, .. } => (*since + self.patience.idle, Verdict::Idle),
        };
        if now < due { Verdict::Wait(due) } else { otherwise }
    }

    pub async fn sooner(&self) {
        self.sooner.notified().await;
    }

    fn bytes_came(&self) {
        let mut state = self.state();
        if state.open == 0 && !state.is_reading_head && !state.is_http2 {
            state.is_reading_head = true;
            state.since = Instant::now();
            drop(state);
            self.sooner.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request, until its answer is sent.
#[derive(Debug)]
pub(super) struct Request(Arc<Activity>);

impl Drop for Request {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        if state.open == 0 {
            state.since = Instant::now();
        }
    }
}

/// The bytes of a connection. Fails when the other end takes none of ours for too long.
pub(super) struct Socket {
    stream: TcpStream,
    activity: Arc<Activity>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    pub fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream, activity, stalled: None }
    }

    fn unless_stalled<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience: Duration = self.activity.patience.stalled;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_came();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_stalled(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.unless_stalled(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_head_has_less_time_than_the_pause_before_it() {
        let patience = Patience::default();
        let activity = Activity::begin(patience);
        let after = |time| activity.verdict(Instant::now() + time);
        assert_eq!(after(patience.head), Verdict::TooSlow, "also the first, of which there is nothing yet");

        let request = activity.request(false);
        assert!(matches!(after(patience.idle * 9), Verdict::Wait(_)), "an answer takes the time that it takes");
        drop(request);
        assert!(matches!(after(patience.head), Verdict::Wait(_)));
        assert_eq!(after(patience.idle), Verdict::Idle);
        activity.bytes_came();
        activity.sooner().await;
        assert_eq!(after(patience.head), Verdict::TooSlow);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_http2_between_requests_are_no_head() {
        let patience = Patience::default();
        let activity = Activity::begin(patience);
        drop(activity.request(true));
        activity.bytes_came();
        assert!(matches!(activity.verdict(Instant::now() + patience.head), Verdict::Wait(_)));
    }
}
