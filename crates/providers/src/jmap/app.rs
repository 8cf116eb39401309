//! What `[providers.jmap]` configures: how much may be called. There is no app of ours at a JMAP server.

use std::sync::Arc;

use domain::{Connector, ProviderDeclaration};
use outbound::CallBudgets;

use super::Jmap;
use super::declaration::DECLARATION;
use crate::app::{ProviderApp, ProviderFolder};
use crate::http::{HttpClient, HttpClientError};
use crate::rates::{self, ProviderRates, RateKeys, rate_keys};

pub const FOLDER: ProviderFolder = ProviderFolder {
    declaration: &DECLARATION,
    read_app: |source, _| Ok(Arc::new(JmapLimits { rates: rates::rates(source, RATES)? })),
};

const RATES: RateKeys = rate_keys!("jmap");

/// The limits of all JMAP servers.
#[derive(Debug, Clone)]
struct JmapLimits {
    rates: ProviderRates,
}

impl ProviderApp for JmapLimits {
    fn declaration(&self) -> &'static ProviderDeclaration {
        &DECLARATION
    }

    fn connector(&self, http: HttpClient) -> Result<Arc<dyn Connector>, HttpClientError> {
        Ok(Arc::new(Jmap::new(http)?))
    }

    fn budgets(&self) -> CallBudgets {
        self.rates.budgets()
    }
}
