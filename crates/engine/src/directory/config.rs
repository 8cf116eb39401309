//! The configuration of a directory, validated before it is stored, and requests to discover one.

use std::time::Duration;

use domain::address::canonical;
use domain::{Backfill, DirectoryRules, PersonSelector, Provider, TenantId};
use serde_json::json;
use store::sql::directories::{Directory, DirectoryDefinition};
use store::{Precondition, StoreError};

use super::DirectoryLocation;
use super::{DiscoverDirectory, DiscoveryMode};
use crate::Engine;

/// The most entries of one list of a rule.
const MAX_LIST_ENTRIES: usize = 1_000;

/// The longest entry of a rule: as long as an address may be.
const MAX_ENTRY_BYTES: usize = 320;

/// The limits of the discovery interval; more often would only cost.
const MIN_INTERVAL: Duration = Duration::from_secs(60);
const MAX_INTERVAL: Duration = Duration::from_secs(30 * 86_400);

/// The discovery interval unless it is configured: people come and go by the day.
pub const DEFAULT_DISCOVERY_INTERVAL: Duration = Duration::from_secs(6 * 3600);

#[derive(Debug, Clone)]
pub struct DirectoryConfig {
    pub provider: Provider,
    pub location: DirectoryLocation,
    pub rules: DirectoryRules,
    pub backfill: Backfill,
    pub interval: Duration,
    pub is_paused: bool,
}

/// A field that is not valid, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct InvalidField {
    pub field: String,
    pub why: String,
}

fn invalid(field: impl Into<String>, why: impl Into<String>) -> InvalidField {
    InvalidField { field: field.into(), why: why.into() }
}

impl DirectoryConfig {
    /// Validates the configuration and returns it in canonical form. `is_directory` tells which names a Microsoft
    /// directory may have.
    pub fn validate(mut self, is_directory: impl Fn(&str) -> bool) -> Result<DirectoryDefinition, InvalidField> {
        match self.provider {
            Provider::Gmail => {
                let given = self.location.administrator.as_deref();
                let given = given.ok_or_else(|| {
                    invalid(
                        "administrator",
                        "is required: the address of an administrator on whose behalf the directory is read",
                    )
                })?;
                let address = canonical(given)
                    .ok_or_else(|| invalid("administrator", "must be an email address, such as admin@acme.test"))?;
                self.location.administrator = Some(address);
                if self.location.directory.is_some() {
                    return Err(invalid(
                        "directory",
                        "must not be set for gmail: Google finds the directory by its administrator",
                    ));
                }
            }
            Provider::Outlook => {
                let given = self.location.directory.as_deref();
                let given = given.ok_or_else(|| {
                    invalid("directory", "is required: the id of the directory, or one of its domains")
                })?;
                if !is_directory(given) {
                    return Err(invalid("directory", "must be the id of a directory, or one of its domains"));
                }
                if self.location.administrator.is_some() {
                    return Err(invalid(
                        "administrator",
                        "must not be set for outlook: Microsoft grants access to the app itself",
                    ));
                }
            }
            _ => return Err(invalid("provider", "must be gmail or outlook")),
        }
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&self.interval) {
            return Err(invalid("interval_seconds", "must be between 60 and 2592000 seconds (30 days)"));
        }
        validate_selector("rules.include", &mut self.rules.include)?;
        validate_selector("rules.exclude", &mut self.rules.exclude)?;
        Ok(DirectoryDefinition {
            provider: self.provider,
            settings: json!(self.location),
            rules: json!(self.rules),
            backfill_seconds: self.backfill.seconds(),
            interval_seconds: self.interval.as_secs(),
            is_paused: self.is_paused,
        })
    }
}

fn validate_selector(field: &str, choice: &mut PersonSelector) -> Result<(), InvalidField> {
    let lists = [
        ("groups", &choice.groups),
        ("units", &choice.units),
        ("domains", &choice.domains),
        ("addresses", &choice.addresses),
    ];
    for (name, list) in lists {
        if list.len() > MAX_LIST_ENTRIES {
            return Err(invalid(format!("{field}.{name}"), format!("must have at most {MAX_LIST_ENTRIES} entries")));
        }
        if !list.iter().all(|text| is_valid_entry(text)) {
            return Err(invalid(
                format!("{field}.{name}"),
                format!("each entry must have 1 to {MAX_ENTRY_BYTES} characters, none of them control characters"),
            ));
        }
    }
    for address in &mut choice.addresses {
        let canonical = canonical(address);
        *address = canonical.ok_or_else(|| {
            invalid(format!("{field}.addresses"), "each entry must be an email address, such as me@acme.test")
        })?;
    }
    Ok(())
}

fn is_valid_entry(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_ENTRY_BYTES && !text.contains(char::is_control)
}

/// Returns whether the directory was changed concurrently.
pub fn is_conflict(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(StoreError::Precondition(Precondition::DirectoryChanged)))
}

impl Engine {
    /// Stores the configuration and enqueues a discovery unless it is paused, in one commit.
    pub async fn put_directory(
        &self,
        tenant: TenantId,
        config: &DirectoryDefinition,
        before: Option<&Directory>,
    ) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(tenant).write();
        unit.put_directory(config, before.map(|before| before.version));
        if !config.is_paused {
            unit.enqueue(vec![DiscoverDirectory::request(self.store.clock(), config.provider, DiscoveryMode::Usual)?]);
        }
        unit.commit().await?;
        tracing::info!(tenant.id = %tenant, provider = config.provider.as_str(), "directory settings changed");
        self.notify_workers().await;
        Ok(())
    }

    /// Removes the directory. Its mailboxes stay as they are.
    pub async fn remove_directory(&self, tenant: TenantId, directory: &Directory) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(tenant).write();
        unit.remove_directory(directory.provider, directory.version);
        unit.commit().await?;
        tracing::info!(tenant.id = %tenant, provider = directory.provider.as_str(), "directory removed");
        Ok(())
    }

    /// Enqueues the discovery of these directories.
    pub async fn request_discovery(
        &self,
        tenant: TenantId,
        providers: &[Provider],
        mode: DiscoveryMode,
    ) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(tenant).write();
        for provider in providers {
            unit.enqueue(vec![DiscoverDirectory::request(self.store.clock(), *provider, mode)?]);
        }
        unit.commit().await?;
        self.notify_workers().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(provider: Provider, directory: Option<&str>, administrator: Option<&str>) -> DirectoryConfig {
        let location = DirectoryLocation {
            directory: directory.map(str::to_owned),
            administrator: administrator.map(str::to_owned),
        };
        let (rules, backfill) = (DirectoryRules::default(), Backfill::Last(Duration::from_secs(60)));
        DirectoryConfig { provider, location, rules, backfill, interval: DEFAULT_DISCOVERY_INTERVAL, is_paused: false }
    }

    fn validated(config: DirectoryConfig) -> Result<DirectoryDefinition, String> {
        config.validate(|name| name != "common").map_err(|invalid| invalid.field)
    }

    #[test]
    fn config_names_what_its_provider_needs() {
        let (gmail, outlook) = (Provider::Gmail, Provider::Outlook);

        let good = validated(config(gmail, None, Some("Admin@Acme.test"))).unwrap();
        assert_eq!(good.settings, json!({"administrator": "admin@acme.test"}));
        assert_eq!(validated(config(outlook, Some("acme.test"), None)).unwrap().backfill_seconds, Some(60));
        assert_eq!(validated(config(gmail, None, None)), Err("administrator".to_owned()));
        assert_eq!(validated(config(gmail, None, Some("admin"))), Err("administrator".to_owned()));
        assert_eq!(validated(config(gmail, Some("acme.test"), Some("a@acme.test"))), Err("directory".to_owned()));
        assert_eq!(validated(config(outlook, None, None)), Err("directory".to_owned()));
        assert_eq!(validated(config(outlook, Some("common"), None)), Err("directory".to_owned()));
        assert_eq!(validated(config(outlook, Some("acme.test"), Some("a@acme.test"))), Err("administrator".to_owned()));
        assert_eq!(validated(config(Provider::Imap, None, None)), Err("provider".to_owned()));
        let often = DirectoryConfig { interval: Duration::from_secs(59), ..config(outlook, Some("acme.test"), None) };
        assert_eq!(validated(often), Err("interval_seconds".to_owned()));
    }

    fn with_rule(exclude: PersonSelector) -> Result<DirectoryDefinition, String> {
        let rules = DirectoryRules { exclude, ..DirectoryRules::default() };
        validated(DirectoryConfig { rules, ..config(Provider::Outlook, Some("acme.test"), None) })
    }

    fn list(text: &str) -> Vec<String> {
        vec![text.to_owned()]
    }

    #[test]
    fn rule_entries_are_validated() {
        let good = with_rule(PersonSelector { addresses: list("Ann@Acme.test"), ..PersonSelector::default() }).unwrap();
        assert_eq!(good.rules["exclude"]["addresses"], json!(["ann@acme.test"]));
        let bad = PersonSelector { addresses: list("ann"), ..PersonSelector::default() };
        assert_eq!(with_rule(bad), Err("rules.exclude.addresses".to_owned()));
        let bad = PersonSelector { units: list(""), ..PersonSelector::default() };
        assert_eq!(with_rule(bad), Err("rules.exclude.units".to_owned()));
        let many =
            PersonSelector { domains: vec!["acme.test".to_owned(); MAX_LIST_ENTRIES + 1], ..PersonSelector::default() };
        assert_eq!(with_rule(many), Err("rules.exclude.domains".to_owned()));
    }
}
