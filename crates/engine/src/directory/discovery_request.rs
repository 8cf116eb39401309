//! The job that discovers a directory, as it is requested. What it does when it runs is in [`crate::jobs`].

use domain::{Clock, Provider};
use jobs::{Job, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, UniqueKey};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscoveryMode {
    /// Changes are held back if suspiciously many mailboxes would go.
    Usual,
    /// Changes are applied, however many mailboxes go.
    Forced,
    /// A dry run: nothing is changed.
    Dry,
}

/// Discovers a tenant's directory and brings its mailboxes in line with it, or only reports what would change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoverDirectory {
    pub(crate) provider: Provider,
    #[serde(rename = "how")]
    pub(crate) mode: DiscoveryMode,
}

impl Job for DiscoverDirectory {
    const KIND: &'static str = "discover_directory";
}

impl DiscoverDirectory {
    /// Requests a discovery; one per provider and mode is live at a time.
    pub fn request(clock: &dyn Clock, provider: Provider, mode: DiscoveryMode) -> Result<NewJob, serde_json::Error> {
        let job = new_job(&Self { provider, mode }, clock, None)?;
        let key = format!("{} {mode:?}", provider.as_str());
        Ok(NewJob { unique: Some(UniqueKey { key, policy: OnConflict::Merge }), ..job })
    }
}
