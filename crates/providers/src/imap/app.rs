//! What `[providers.imap]` configures: how much may be called, and fetched per day. There is no app of ours at an IMAP
//! server.

use std::sync::Arc;

use domain::setting_values::MAX_BYTES_PER_DAY;
use domain::{Connector, ProviderDeclaration};
use outbound::CallBudgets;

use super::Imap;
use super::declaration::DECLARATION;
use crate::app::{ProviderApp, ProviderFolder};
use crate::http::{HttpClient, HttpClientError};
use crate::rates::{self, ProviderRates, RateKeys, rate_keys};
use crate::settings_source::{AppSettingError, SettingsSource};

pub const FOLDER: ProviderFolder =
    ProviderFolder { declaration: &DECLARATION, read_app: |source, _| Ok(Arc::new(ImapLimits::read(source)?)) };

const RATES: RateKeys = {
    let mut keys: RateKeys = rate_keys!("imap");
    // The bytes of a mailbox have an older key of their own.
    keys[3].1 = None;
    keys
};

/// The limits of all IMAP servers.
#[derive(Debug, Clone)]
pub struct ImapLimits {
    /// Default of each mailbox; 0: no limit. `None`: the known limit of its server.
    pub bytes_per_day: Option<u64>,
    pub rates: ProviderRates,
}

impl ImapLimits {
    pub fn read(source: &mut dyn SettingsSource) -> Result<Self, AppSettingError> {
        const KEY: &str = "providers.imap.bytes_per_day";
        let bytes_per_day = if source.is_given(KEY) {
            Some(source.size(KEY, 0..=MAX_BYTES_PER_DAY)?)
        } else {
            source.show(KEY, "0 B, and 2 GB at Gmail".to_owned(), "default");
            None
        };
        Ok(Self { bytes_per_day, rates: rates::rates(source, RATES)? })
    }
}

impl ProviderApp for ImapLimits {
    fn declaration(&self) -> &'static ProviderDeclaration {
        &DECLARATION
    }

    fn connector(&self, _http: HttpClient) -> Result<Arc<dyn Connector>, HttpClientError> {
        Ok(Arc::new(Imap::default()))
    }

    fn budgets(&self) -> CallBudgets {
        self.rates.budgets()
    }

    fn mailbox_bytes_per_day(&self) -> Option<u64> {
        self.bytes_per_day
    }
}
