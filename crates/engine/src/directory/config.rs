//! The configuration of a directory, validated before it is stored.

use std::time::Duration;

use domain::address::canonical;
use domain::{
    Backfill, DirectoryLocation, DirectoryRules, InvalidField, PersonSelector, Provider, ProviderDeclarations,
};
use serde_json::json;
use store::sql::directories::DirectoryDefinition;

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

fn invalid(field: impl Into<String>, why: impl Into<String>) -> InvalidField {
    InvalidField::new(field, why)
}

impl DirectoryConfig {
    /// Validates the configuration and returns it in canonical form; where the directory is, as its provider wants it.
    pub fn validate(mut self, providers: ProviderDeclarations) -> Result<DirectoryDefinition, InvalidField> {
        let Some(directory) = providers.directory(self.provider) else {
            return Err(invalid("provider", format!("must be {}", directory_providers().join(" or "))));
        };
        self.location = (directory.check)(self.location)?;
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

/// Lists the providers that have directories.
pub fn directory_providers() -> Vec<&'static str> {
    let with_directory = Provider::ALL.into_iter().filter(|provider| provider.capabilities().has_directory);
    with_directory.map(Provider::as_str).collect()
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
        config.validate(providers::registry::DECLARATIONS).map_err(|invalid| invalid.field)
    }

    #[test]
    fn config_names_what_its_provider_needs() {
        let (gmail, outlook) = (Provider::Gmail, Provider::Outlook);

        let good = validated(config(gmail, None, Some("Admin@Acme.test"))).unwrap();
        assert_eq!(good.settings, json!({"administrator": "admin@acme.test"}));
        assert_eq!(validated(config(outlook, Some("acme.test"), None)).unwrap().backfill_seconds, Some(60));
        assert_eq!(validated(config(gmail, None, None)), Err("administrator".to_owned()));
        assert_eq!(validated(config(outlook, None, None)), Err("directory".to_owned()));
        let nowhere = config(Provider::Imap, None, None).validate(providers::registry::DECLARATIONS);
        assert_eq!(nowhere, Err(invalid("provider", "must be gmail or outlook")));
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
