//! Our app at a provider, as its folder makes it from `[providers.<name>]`: whose credentials we have there, what they are
//! good for, and how much we may call.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use domain::{Connector, ConsentFlow, ProviderDeclaration, PushReader};
use jwt::Documents;
use outbound::CallBudgets;

use crate::http::{HttpClient, HttpClientError};
use crate::settings_source::{AppSettingError, SettingsSource};

/// Our app at one provider.
pub trait ProviderApp: Any + Send + Sync + fmt::Debug {
    fn declaration(&self) -> &'static ProviderDeclaration;

    /// Creates the connector, which makes its calls with `http`.
    fn connector(&self, http: HttpClient) -> Result<Arc<dyn Connector>, HttpClientError>;

    /// Returns how much may be called.
    fn budgets(&self) -> CallBudgets;

    /// Returns the daily quota of mailboxes that have none of their own; 0 is no limit.
    fn mailbox_bytes_per_day(&self) -> Option<u64> {
        None
    }

    /// Creates the reader of pushes, if they are configured. `documents` fetches the keys of those who sign them.
    fn push_reader(&self, _documents: Box<dyn Documents>) -> Option<Arc<dyn PushReader>> {
        None
    }

    /// Creates the consent flow, if there is an app for it.
    fn consent_flow(&self, _http: HttpClient) -> Option<Arc<dyn ConsentFlow>> {
        None
    }

    /// Returns whether mailboxes request pushes.
    fn requests_pushes(&self) -> bool {
        false
    }

    /// Returns why there is no push although an app is configured.
    fn missing_push_reason(&self) -> Option<&'static str> {
        None
    }

    /// Describes what is configured, under the name of its section. Fails with the first setting that is missing. `None`:
    /// there is nothing to configure.
    fn setup_status(&self) -> Option<(&'static str, Result<String, String>)> {
        None
    }

    /// Fails unless the app is configured for this, with a sentence that says what to set.
    fn check_use(&self, _intended: AppUse) -> Result<(), String> {
        Ok(())
    }
}

/// What an app may be needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppUse {
    /// Opening a mailbox without its owner's consent.
    AppOnly,
    /// Opening a mailbox with a refresh token.
    RefreshToken,
    /// Asking the owner of a mailbox for consent.
    Consent,
    /// Asking the administrator of a directory for consent.
    AdminConsent,
    /// Reading a directory.
    Directory,
}

/// Reads the settings of our app. The text is the URL under which the provider reaches this server.
pub type ReadApp = fn(&mut dyn SettingsSource, &str) -> Result<Arc<dyn ProviderApp>, AppSettingError>;

/// A provider's folder, as the registry lists it.
#[derive(Debug, Clone, Copy)]
pub struct ProviderFolder {
    pub declaration: &'static ProviderDeclaration,
    pub read_app: ReadApp,
}
