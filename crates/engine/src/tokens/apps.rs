//! What all mailboxes of one of our apps have in common: when the app itself is refused, each of them would be, so one of
//! them finds out for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{ConnectorError, Provider};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::{Asker, unavailable};

/// Calls for tokens at the same time: enough for a start with thousands of mailboxes, and few enough to be stopped when
/// the first of them is refused.
const AT_ONCE: usize = 8;

/// For how long a refusal of the app holds for all.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Nobody reads the same warning more often.
const WARN_EVERY: Duration = Duration::from_secs(300);

/// By provider, and whether it is the one that acts by its own right where that is another than people consent to.
#[derive(Debug, Default)]
pub struct Apps(Mutex<HashMap<(Provider, bool), Arc<App>>>);

impl Apps {
    pub fn of(&self, asker: &Asker) -> Arc<App> {
        let provider = asker.connector.provider();
        // At Google that is a service account. At Microsoft it is one app with one secret, whoever has let it in.
        let is_another = provider == Provider::Gmail && asker.account.secret.is_none();
        let mut apps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        apps.entry((provider, is_another)).or_insert_with(|| Arc::new(App::new(provider))).clone()
    }
}

#[derive(Debug)]
pub struct App {
    provider: Provider,
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    refused: Option<(Instant, ConnectorError)>,
    warned: Option<Instant>,
}

impl App {
    fn new(provider: Provider) -> Self {
        Self { provider, places: Semaphore::new(AT_ONCE), state: Mutex::default() }
    }

    /// A place among those who ask, or what the last of them was told.
    pub async fn place(&self) -> Result<SemaphorePermit<'_>, ConnectorError> {
        self.refusal()?;
        let place = self.places.acquire().await.map_err(|_| unavailable("nobody may ask for tokens"))?;
        self.refusal()?;
        Ok(place)
    }

    fn refusal(&self) -> Result<(), ConnectorError> {
        match &self.state().refused {
            Some((until, e)) if Instant::now() < *until => Err(e.clone()),
            _ => Ok(()),
        }
    }

    /// One warning for all mailboxes: it is not theirs.
    pub fn was_refused(&self, e: &ConnectorError) {
        if !matches!(e, ConnectorError::Operator(_)) {
            return;
        }
        let now = Instant::now();
        let mut state = self.state();
        state.refused = Some((now + REFUSED_FOR, e.clone()));
        if state.warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY) {
            state.warned = Some(now);
            tracing::warn!(provider = self.provider.as_str(), "no mailbox there can be opened: {e}");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
