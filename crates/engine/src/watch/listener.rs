//! One mailbox is listened to, until the task is ended.

use std::sync::Arc;
use std::time::Duration;

use domain::{ConnectorError, Lane};
use store::sql::sync::Key;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::asking::Ask;

/// After news: what comes in quick succession is one look.
const BREATH: Duration = Duration::from_millis(200);

/// A server that has been restless for so many times in a row has something to say all the time; mail hardly comes like
/// that. It is listened to less and less often then, up to 128 times [`BREATH`].
const PATIENCE: u32 = 100;

/// Who says something sooner than this after the last time is restless.
const RESTLESS: Duration = Duration::from_secs(1);

enum Heard {
    News,
    Nothing,
    /// Its server does not say anything by itself.
    Never,
    /// It is switched off or waits for somebody, which ends this task soon.
    NotNow,
}

pub async fn listen(shared: Arc<Shared>, key: Key, delay: Duration) {
    sleep(delay).await;
    let mut listening = Listening { shared, key, failures: 0, has_missed: true };
    let mut restless: u32 = 0;
    loop {
        let began = Instant::now();
        match listening.once().await {
            Ok(Heard::News) => {
                listening.failures = 0;
                listening.has_missed = true;
                listening.ask(Lane::High);
                restless = if began.elapsed() < RESTLESS { restless + 1 } else { 0 };
                sleep(BREATH * (1 << (restless.saturating_sub(PATIENCE) / 4).min(7))).await;
            }
            Ok(Heard::Nothing) => listening.failures = 0,
            Ok(Heard::Never) => std::future::pending().await,
            Ok(Heard::NotNow) => sleep(listening.shared.settings.lease).await,
            Err(e) => {
                let pause = listening.pause_after(&e);
                sleep(pause).await;
            }
        }
    }
}

struct Listening {
    shared: Arc<Shared>,
    key: Key,
    failures: u64,
    /// Something may have come while nobody listened.
    has_missed: bool,
}

impl Listening {
    async fn once(&mut self) -> Result<Heard, ConnectorError> {
        let settings = &self.shared.settings;
        let opened = self.shared.syncer.open(self.key.0, self.key.1).await;
        let opened = opened.map_err(|e| ConnectorError::Unavailable(e.to_string()))?;
        let Some(opened) = opened else { return Ok(Heard::NotNow) };
        // Not by way of the budgets of calls, whose deadlines are for calls that end.
        let Some(mut listening) = opened.connector.listen(&opened.account, settings.at_most) else {
            return Ok(Heard::Never);
        };
        let _counted = Counted::new();
        let settled = sleep(settings.settled.mul_f64(1.0 + settings.dice.fraction()));
        tokio::pin!(settled);
        loop {
            tokio::select! {
                heard = &mut listening => return heard.map(|news| if news { Heard::News } else { Heard::Nothing }),
                () = &mut settled, if self.has_missed => {
                    self.has_missed = false;
                    self.ask(Lane::Normal);
                }
            }
        }
    }

    fn pause_after(&mut self, e: &ConnectorError) -> Duration {
        self.has_missed = true;
        let retry = self.shared.settings.retry;
        let usual = retry.delay(self.failures, &*self.shared.settings.dice).unwrap_or(retry.longest);
        self.failures += 1;
        match e {
            ConnectorError::Unauthorized(_) => {
                // The look at it finds out, and says who has to do something about it. That ends this task.
                self.ask(Lane::High);
                retry.longest
            }
            ConnectorError::Throttled { retry_after } => retry_after.unwrap_or_default().max(usual),
            ConnectorError::NotYet(wait) => (*wait).max(usual),
            e => {
                tracing::debug!(mailbox.id = %self.key.1, "cannot listen to a mailbox for now: {e}");
                usual
            }
        }
    }

    fn ask(&self, lane: Lane) {
        // Nobody is there to be asked only when the process ends.
        let _ = self.shared.asks.send(Ask { key: self.key, lane });
    }
}

/// A mailbox that is listened to at this moment.
struct Counted;

impl Counted {
    fn new() -> Self {
        metrics::gauge!("mailroom_idle_connections").increment(1.0);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::gauge!("mailroom_idle_connections").decrement(1.0);
    }
}
