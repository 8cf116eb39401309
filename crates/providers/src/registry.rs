//! All providers, a line each.

use std::collections::HashMap;
use std::sync::Arc;

use domain::{Connector, Provider, ProviderDeclarations};

use crate::gmail::GoogleSettings;
use crate::http::{HttpClient, HttpClientError, HttpTimeouts};
use crate::outlook::MicrosoftSettings;

/// What the providers declare, a line each.
pub const DECLARATIONS: ProviderDeclarations =
    ProviderDeclarations(&[&crate::imap::DECLARATION, &crate::gmail::DECLARATION, &crate::outlook::DECLARATION]);

/// Returns the connector of every provider.
pub fn all(
    google: &GoogleSettings,
    microsoft: &MicrosoftSettings,
) -> Result<HashMap<Provider, Arc<dyn Connector>>, HttpClientError> {
    let http = HttpClient::new(HttpTimeouts::default())?;
    let gmail = crate::gmail::Gmail::new(http.clone(), google)?;
    let outlook = crate::outlook::Outlook::new(http, microsoft)?;
    let all: [Arc<dyn Connector>; 3] = [Arc::new(crate::imap::Imap::default()), Arc::new(gmail), Arc::new(outlook)];
    Ok(all.into_iter().map(|connector| (connector.provider(), connector)).collect())
}
