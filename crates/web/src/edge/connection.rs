//! Activity of a connection, from which its timeouts follow, and a socket that fails when the client stops reading.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::settings::Timeouts;

/// Tracks what a connection is doing, to apply head and idle timeouts.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    timeouts: Timeouts,
    state: Mutex<ConnectionState>,
    /// Signals that the deadline is earlier than before.
    deadline_moved: Notify,
}

#[derive(Debug)]
struct ConnectionState {
    /// Requests whose response is not sent completely.
    open: usize,
    /// Without an open request: since when the connection waits, and whether the next head has started.
    since: Instant,
    is_reading_head: bool,
    /// In HTTP/2, frames between requests are not heads.
    is_http2: bool,
}

/// Whether a connection has timed out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IdleVerdict {
    /// Not before this instant.
    Wait(Instant),
    /// No request came within the idle timeout.
    Idle,
    /// A request head did not arrive completely in time.
    HeadTimeout,
}

impl ConnectionActivity {
    /// Starts with the head timeout: the first head is due at once.
    pub fn begin(timeouts: Timeouts) -> Arc<Self> {
        let state = ConnectionState { open: 0, since: Instant::now(), is_reading_head: true, is_http2: false };
        Arc::new(Self { timeouts, state: Mutex::new(state), deadline_moved: Notify::new() })
    }

    /// Registers a request whose head is complete; it is open until the returned value is dropped.
    pub fn request(self: &Arc<Self>, is_http2: bool) -> OpenRequest {
        let mut state = self.state();
        state.open += 1;
        state.is_reading_head = false;
        state.is_http2 = is_http2;
        OpenRequest(self.clone())
    }

    pub fn verdict(&self, now: Instant) -> IdleVerdict {
        let state = self.state();
        let (due, expired) = match &*state {
            ConnectionState { open: 1.., .. } => return IdleVerdict::Wait(now + self.timeouts.idle),
            ConnectionState { is_reading_head: true, since, .. } => {
                (*since + self.timeouts.head, IdleVerdict::HeadTimeout)
            }
            ConnectionState { since, .. } => (*since + self.timeouts.idle, IdleVerdict::Idle),
        };
        if now < due { IdleVerdict::Wait(due) } else { expired }
    }

    pub async fn deadline_moved(&self) {
        self.deadline_moved.notified().await;
    }

    fn bytes_received(&self) {
        let mut state = self.state();
        if state.open == 0 && !state.is_reading_head && !state.is_http2 {
            state.is_reading_head = true;
            state.since = Instant::now();
            drop(state);
            self.deadline_moved.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request whose response is not sent completely yet.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<ConnectionActivity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        if state.open == 0 {
            state.since = Instant::now();
        }
    }
}

/// Socket whose writes fail when the client reads nothing for the stall timeout.
pub(super) struct StallGuard {
    stream: TcpStream,
    activity: Arc<ConnectionActivity>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl StallGuard {
    pub fn new(stream: TcpStream, activity: Arc<ConnectionActivity>) -> Self {
        Self { stream, activity, stalled: None }
    }

    fn unless_stalled<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeouts: Duration = self.activity.timeouts.stalled;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeouts)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for StallGuard {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_received();
        }
        read
    }
}

impl AsyncWrite for StallGuard {
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
    async fn head_timeout_is_shorter_than_idle_timeout() {
        let timeouts = Timeouts::default();
        let activity = ConnectionActivity::begin(timeouts);
        let after = |time| activity.verdict(Instant::now() + time);
        assert_eq!(after(timeouts.head), IdleVerdict::HeadTimeout, "also the first head, of which no byte has arrived");

        let request = activity.request(false);
        assert!(matches!(after(timeouts.idle * 9), IdleVerdict::Wait(_)), "an open request is not idle");
        drop(request);
        assert!(matches!(after(timeouts.head), IdleVerdict::Wait(_)));
        assert_eq!(after(timeouts.idle), IdleVerdict::Idle);
        activity.bytes_received();
        activity.deadline_moved().await;
        assert_eq!(after(timeouts.head), IdleVerdict::HeadTimeout);
    }

    #[tokio::test(start_paused = true)]
    async fn http2_frames_between_requests_are_no_head() {
        let timeouts = Timeouts::default();
        let activity = ConnectionActivity::begin(timeouts);
        drop(activity.request(true));
        activity.bytes_received();
        assert!(matches!(activity.verdict(Instant::now() + timeouts.head), IdleVerdict::Wait(_)));
    }
}
