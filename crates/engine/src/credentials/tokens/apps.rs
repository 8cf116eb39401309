//! State that all mailboxes of one of our apps share: when the app itself is rejected, each of them would be, so one
//! call finds out for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{ConnectorError, Provider, redact_for_log};
use outbound::limits::{Limit, MAX_TOKEN_CALLS};
use outbound::permits::{Permit, PermitTable};
use tokio::time::Instant;

use super::TokenRequest;

/// For how long a rejection of the app holds for all mailboxes.
const REFUSAL_TTL: Duration = Duration::from_secs(60);

/// The interval between two warnings.
const WARN_INTERVAL: Duration = Duration::from_secs(300);

/// An app by its provider, and whether it is the app-only one where that differs from the app that people consent to.
pub type AppKey = (Provider, bool);

#[derive(Debug)]
pub struct ProviderApps {
    apps: Mutex<HashMap<AppKey, Arc<ProviderApp>>>,
    permits: PermitTable<AppKey>,
}

impl Default for ProviderApps {
    fn default() -> Self {
        Self { apps: Mutex::default(), permits: PermitTable::new(Limit::TokenCalls) }
    }
}

impl ProviderApps {
    pub fn of(&self, request: &TokenRequest) -> Arc<ProviderApp> {
        let provider = request.connector.provider();
        // At Google the app-only one is a service account. At Microsoft it is one app with one secret.
        let is_another = provider.capabilities().has_service_account && request.account.secret.is_none();
        let key = (provider, is_another);
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let app = apps
            .entry(key)
            .or_insert_with(|| Arc::new(ProviderApp { key, permits: self.permits.clone(), state: Mutex::default() }));
        app.clone()
    }
}

#[derive(Debug)]
pub struct ProviderApp {
    key: AppKey,
    permits: PermitTable<AppKey>,
    state: Mutex<AppState>,
}

#[derive(Debug, Default)]
struct AppState {
    refused: Option<(Instant, ConnectorError)>,
    warned: Option<Instant>,
}

impl ProviderApp {
    /// Waits for a permit to call for a token, or returns the recent rejection of the app.
    pub async fn acquire(&self) -> Result<Permit<AppKey>, ConnectorError> {
        self.check_refusal()?;
        let permit = self.permits.wait(&[(self.key, MAX_TOKEN_CALLS)]).await;
        self.check_refusal()?;
        Ok(permit)
    }

    fn check_refusal(&self) -> Result<(), ConnectorError> {
        match &self.state().refused {
            Some((until, e)) if Instant::now() < *until => Err(e.clone()),
            _ => Ok(()),
        }
    }

    /// Records a rejection of the app, with one warning for all mailboxes.
    pub fn record_refusal(&self, e: &ConnectorError) {
        if !matches!(e, ConnectorError::AppRejected(_)) {
            return;
        }
        let now = Instant::now();
        let mut state = self.state();
        state.refused = Some((now + REFUSAL_TTL, e.clone()));
        if state.warned.is_none_or(|warned| now.duration_since(warned) >= WARN_INTERVAL) {
            state.warned = Some(now);
            tracing::warn!(
                provider = self.key.0.as_str(),
                error = redact_for_log(e),
                "app rejected by the provider; its mailboxes cannot be opened"
            );
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, AppState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
