//! Connectors to mail providers. A connector translates and nothing more: its caller decides when to call, how often, and
//! what to store.
//!
//! Each provider has a folder, whose `mod.rs` is its [`Connector`]; [`all`] lists them. CONTRIBUTING has the recipe for a new one.

mod folder_diff;
pub mod gmail;
pub mod google;
pub mod http;
pub mod imap;
mod json_stream;
pub mod microsoft;
mod oauth;
pub mod outlook;
mod people;
mod provider_text;

use std::collections::HashMap;
use std::sync::Arc;

use domain::{Connector, Provider};

use google::GoogleSettings;
use http::{HttpClient, HttpClientError, HttpTimeouts};
use microsoft::MicrosoftSettings;

/// Returns the connector of every provider.
pub fn all(
    google: &GoogleSettings,
    microsoft: &MicrosoftSettings,
) -> Result<HashMap<Provider, Arc<dyn Connector>>, HttpClientError> {
    let http = HttpClient::new(HttpTimeouts::default())?;
    let gmail = gmail::Gmail::new(http.clone(), google)?;
    let outlook = outlook::Outlook::new(http, microsoft)?;
    let all: [Arc<dyn Connector>; 3] = [Arc::new(imap::Imap::default()), Arc::new(gmail), Arc::new(outlook)];
    Ok(all.into_iter().map(|connector| (connector.provider(), connector)).collect())
}
