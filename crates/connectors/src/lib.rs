//! Other people's mail servers. A connector translates and nothing more: when to call, how often, and what to store is
//! decided by who calls it.
//!
//! A folder per provider: `mod.rs` is its [`Connector`], `api.rs` has their words, `translate.rs` turns theirs into ours.

mod folders;
pub mod gmail;
pub mod google;
pub mod http;
pub mod imap;
pub mod microsoft;
mod names;
mod oauth;
pub mod outlook;
mod people;
mod raw_json;
pub mod scripted;

use std::collections::HashMap;
use std::sync::Arc;

use domain::{Connector, Provider};

use google::GoogleSettings;
use http::{Deadlines, Http, NoClient};
use microsoft::MicrosoftSettings;

/// Those of every provider that has one.
pub fn all(
    google: &GoogleSettings,
    microsoft: &MicrosoftSettings,
) -> Result<HashMap<Provider, Arc<dyn Connector>>, NoClient> {
    let http = Http::new(Deadlines::default())?;
    let gmail = gmail::Gmail::new(http.clone(), google)?;
    let outlook = outlook::Outlook::new(http.clone(), microsoft)?;
    let all: [Arc<dyn Connector>; 4] =
        [Arc::new(scripted::Scripted::new(http)), Arc::new(imap::Imap::default()), Arc::new(gmail), Arc::new(outlook)];
    Ok(all.into_iter().map(|connector| (connector.provider(), connector)).collect())
}
