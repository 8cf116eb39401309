//! The listener of one mailbox, a task that runs until it is aborted.

use std::sync::Arc;
use std::time::Duration;

use domain::metrics as catalogue;
use domain::{ConnectorError, Lane, redact_for_log};
use store::sql::sync::MailboxKey;
use tokio::time::{Instant, sleep};

use super::ListenerContext;
use super::sync_requests::SyncRequest;

/// The pause after a report: changes in quick succession become one sync.
const SYNC_DEBOUNCE_DELAY: Duration = Duration::from_millis(200);

/// Restless reports in a row after which a server is listened to less and less often, down to every 128 times
/// [`SYNC_DEBOUNCE_DELAY`]: mail hardly comes like that.
const RAPID_SIGNAL_LIMIT: u32 = 100;

/// A report sooner than this after the last one is restless.
const RAPID_SIGNAL_INTERVAL: Duration = Duration::from_secs(1);

enum ListenOutcome {
    News,
    Nothing,
    /// The server does not support listening.
    Never,
    /// The mailbox is switched off or waits for a person, which ends this task soon.
    NotNow,
}

pub async fn listen(shared: Arc<ListenerContext>, key: MailboxKey, delay: Duration) {
    sleep(delay).await;
    let mut listener = MailboxListener { shared, key, failures: 0, may_have_missed: true };
    let mut restless: u32 = 0;
    loop {
        let began = Instant::now();
        match listener.listen_once().await {
            Ok(ListenOutcome::News) => {
                listener.failures = 0;
                listener.may_have_missed = true;
                listener.request_sync(Lane::High);
                restless = if began.elapsed() < RAPID_SIGNAL_INTERVAL { restless + 1 } else { 0 };
                sleep(SYNC_DEBOUNCE_DELAY * (1 << (restless.saturating_sub(RAPID_SIGNAL_LIMIT) / 4).min(7))).await;
            }
            Ok(ListenOutcome::Nothing) => listener.failures = 0,
            Ok(ListenOutcome::Never) => std::future::pending().await,
            Ok(ListenOutcome::NotNow) => sleep(listener.shared.settings.lease).await,
            Err(e) => {
                let pause = listener.pause_after(&e);
                sleep(pause).await;
            }
        }
    }
}

struct MailboxListener {
    shared: Arc<ListenerContext>,
    key: MailboxKey,
    failures: u64,
    /// Something may have come while the connection was down.
    may_have_missed: bool,
}

impl MailboxListener {
    async fn listen_once(&mut self) -> Result<ListenOutcome, ConnectorError> {
        let settings = &self.shared.settings;
        let session = self.shared.syncer.open(self.key.0, self.key.1).await;
        let session = session.map_err(|e| ConnectorError::Unavailable(e.to_string()))?;
        let Some(session) = session else { return Ok(ListenOutcome::NotNow) };
        let _permit = self.shared.syncer.gateway.admit_listener(&session.target)?;
        let Some(mut listener) = session.connector.listen(&session.account, settings.max_listen) else {
            return Ok(ListenOutcome::Never);
        };
        let _counted = IdleConnectionGauge::new();
        let settled = sleep(settings.settle_delay.mul_f64(1.0 + settings.random.next_fraction()));
        tokio::pin!(settled);
        loop {
            tokio::select! {
                heard = &mut listener => return heard.map(|news| if news { ListenOutcome::News } else { ListenOutcome::Nothing }),
                () = &mut settled, if self.may_have_missed => {
                    self.may_have_missed = false;
                    self.request_sync(Lane::Normal);
                }
            }
        }
    }

    fn pause_after(&mut self, e: &ConnectorError) -> Duration {
        self.may_have_missed = true;
        let retry = self.shared.settings.retry;
        let usual = retry.delay(self.failures, &*self.shared.settings.random).unwrap_or(retry.max_delay);
        self.failures += 1;
        match e {
            ConnectorError::Unauthorized(_) => {
                // The sync marks the mailbox, which ends this task.
                self.request_sync(Lane::High);
                retry.max_delay
            }
            ConnectorError::Throttled { retry_after } => retry_after.unwrap_or_default().max(usual),
            ConnectorError::RateLimited(wait) => (*wait).max(usual),
            e => {
                tracing::debug!(tenant.id = %self.key.0, mailbox.id = %self.key.1, error = redact_for_log(e), "listening failed; retrying");
                usual
            }
        }
    }

    fn request_sync(&self, lane: Lane) {
        // The receiver is gone only when the process ends.
        let _ = self.shared.requests.send(SyncRequest { key: self.key, lane });
    }
}

/// Counts an open listening connection while it lives.
struct IdleConnectionGauge;

impl IdleConnectionGauge {
    fn new() -> Self {
        metrics::gauge!(catalogue::IDLE_CONNECTIONS).increment(1.0);
        Self
    }
}

impl Drop for IdleConnectionGauge {
    fn drop(&mut self) {
        metrics::gauge!(catalogue::IDLE_CONNECTIONS).decrement(1.0);
    }
}
