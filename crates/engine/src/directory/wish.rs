//! What somebody wants of a directory, looked at before it is stored; and asking for a look at one.

use std::time::Duration;

use domain::address::canonical;
use domain::{Choice, Provider, Rules, TenantId};
use serde_json::json;
use store::StoreError;
use store::sql::directories::{DIRECTORY_CHANGED, Directory, DirectoryWish};

use super::Place;
use crate::Engine;
use crate::jobs::{DiscoverDirectory, Discovery};
use crate::mailboxes::Backfill;

/// The most that a rule names of one kind.
const MOST: usize = 1_000;

/// As long as an address may be.
const LONGEST: usize = 320;

/// How often a directory may be looked at; more often would only cost.
const SOONEST: Duration = Duration::from_secs(60);
const LATEST: Duration = Duration::from_secs(30 * 86_400);

/// How often it is, unless it is said: people come and go by the day.
pub const USUAL: Duration = Duration::from_secs(6 * 3600);

#[derive(Debug, Clone)]
pub struct Wish {
    pub provider: Provider,
    pub place: Place,
    pub rules: Rules,
    pub backfill: Backfill,
    pub interval: Duration,
    pub is_paused: bool,
}

/// What is wrong with it, by the name of the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Wrong {
    pub field: String,
    pub why: String,
}

fn wrong(field: impl Into<String>, why: impl Into<String>) -> Wrong {
    Wrong { field: field.into(), why: why.into() }
}

impl Wish {
    /// In canonical case, if it can be done. `is_directory` knows which names Microsoft's may have.
    pub fn checked(mut self, is_directory: impl Fn(&str) -> bool) -> Result<DirectoryWish, Wrong> {
        match self.provider {
            Provider::Gmail => {
                let given = self.place.administrator.as_deref();
                let given = given.ok_or_else(|| {
                    wrong(
                        "administrator",
                        "there has to be one: the address of an administrator for whom the directory is read",
                    )
                })?;
                let address =
                    canonical(given).ok_or_else(|| wrong("administrator", "it is like somebody@somewhere"))?;
                self.place.administrator = Some(address);
                if self.place.directory.is_some() {
                    return Err(wrong("directory", "Google knows it by its administrator"));
                }
            }
            Provider::Outlook => {
                let given = self.place.directory.as_deref();
                let given =
                    given.ok_or_else(|| wrong("directory", "there has to be one: its id, or one of its domains"))?;
                if !is_directory(given) {
                    return Err(wrong("directory", "it is the id of a directory, or one of its domains"));
                }
                if self.place.administrator.is_some() {
                    return Err(wrong("administrator", "Microsoft lets our app in by itself"));
                }
            }
            _ => return Err(wrong("provider", "it is gmail or outlook")),
        }
        if !(SOONEST..=LATEST).contains(&self.interval) {
            return Err(wrong("interval_seconds", "it is from a minute to 30 days"));
        }
        check_choice("rules.include", &mut self.rules.include)?;
        check_choice("rules.exclude", &mut self.rules.exclude)?;
        Ok(DirectoryWish {
            provider: self.provider,
            settings: json!(self.place),
            rules: json!(self.rules),
            backfill_seconds: match self.backfill {
                Backfill::All => None,
                Backfill::None => Some(0),
                Backfill::Last(duration) => Some(duration.as_secs()),
            },
            interval_seconds: self.interval.as_secs(),
            is_paused: self.is_paused,
        })
    }
}

fn check_choice(field: &str, choice: &mut Choice) -> Result<(), Wrong> {
    let lists = [
        ("groups", &choice.groups),
        ("units", &choice.units),
        ("domains", &choice.domains),
        ("addresses", &choice.addresses),
    ];
    for (name, list) in lists {
        if list.len() > MOST {
            return Err(wrong(format!("{field}.{name}"), format!("there are at most {MOST}")));
        }
        let is_good = |text: &&String| !text.is_empty() && text.len() <= LONGEST && !text.contains(char::is_control);
        if !list.iter().all(|text| is_good(&text)) {
            return Err(wrong(format!("{field}.{name}"), format!("each is 1 to {LONGEST} characters")));
        }
    }
    for address in &mut choice.addresses {
        let canonical = canonical(address);
        *address = canonical.ok_or_else(|| wrong(format!("{field}.addresses"), "each is like somebody@somewhere"))?;
    }
    Ok(())
}

/// Whether somebody else changed the directory at the same moment.
pub fn is_changed(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(StoreError::Precondition(DIRECTORY_CHANGED)))
}

impl Engine {
    /// It is as wanted, and looked at soon unless it is paused; one commit.
    pub async fn put_directory(
        &self,
        tenant: TenantId,
        wish: &DirectoryWish,
        before: Option<&Directory>,
    ) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(tenant).write();
        unit.put_directory(wish, before.map(|before| before.version));
        if !wish.is_paused {
            unit.enqueue(vec![DiscoverDirectory::now(self.store.clock(), wish.provider, Discovery::Usual)?]);
        }
        unit.commit().await?;
        self.tell_workers().await;
        Ok(())
    }

    /// Nobody is looked for there any more. Mailboxes stay as they are.
    pub async fn remove_directory(&self, tenant: TenantId, directory: &Directory) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(tenant).write();
        unit.remove_directory(directory.provider, directory.version);
        unit.commit().await?;
        Ok(())
    }

    /// They are looked at as soon as somebody is free.
    pub async fn request_discovery(
        &self,
        tenant: TenantId,
        providers: &[Provider],
        how: Discovery,
    ) -> anyhow::Result<()> {
        let mut unit = self.store.tenant(tenant).write();
        for provider in providers {
            unit.enqueue(vec![DiscoverDirectory::now(self.store.clock(), *provider, how)?]);
        }
        unit.commit().await?;
        self.tell_workers().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(provider: Provider, directory: Option<&str>, administrator: Option<&str>) -> Wish {
        let place = Place { directory: directory.map(str::to_owned), administrator: administrator.map(str::to_owned) };
        let (rules, backfill) = (Rules::default(), Backfill::Last(Duration::from_secs(60)));
        Wish { provider, place, rules, backfill, interval: USUAL, is_paused: false }
    }

    #[test]
    fn a_wish_names_what_its_provider_needs_and_nothing_else() {
        let checked = |wish: Wish| wish.checked(|name| name != "common").map_err(|wrong| wrong.field);
        let (gmail, outlook) = (Provider::Gmail, Provider::Outlook);

        let good = checked(wish(gmail, None, Some("Admin@Acme.test"))).unwrap();
        assert_eq!(good.settings, json!({"administrator": "admin@acme.test"}));
        assert_eq!(checked(wish(outlook, Some("acme.test"), None)).unwrap().backfill_seconds, Some(60));
        assert_eq!(checked(wish(gmail, None, None)), Err("administrator".to_owned()));
        assert_eq!(checked(wish(gmail, None, Some("admin"))), Err("administrator".to_owned()));
        assert_eq!(checked(wish(gmail, Some("acme.test"), Some("a@acme.test"))), Err("directory".to_owned()));
        assert_eq!(checked(wish(outlook, None, None)), Err("directory".to_owned()));
        assert_eq!(checked(wish(outlook, Some("common"), None)), Err("directory".to_owned()));
        assert_eq!(checked(wish(outlook, Some("acme.test"), Some("a@acme.test"))), Err("administrator".to_owned()));
        assert_eq!(checked(wish(Provider::Imap, None, None)), Err("provider".to_owned()));
        let often = Wish { interval: Duration::from_secs(59), ..wish(outlook, Some("acme.test"), None) };
        assert_eq!(checked(often), Err("interval_seconds".to_owned()));
    }

    #[test]
    fn what_a_rule_names_is_something_that_can_be() {
        let checked = |choice: Choice| {
            let rules = Rules { exclude: choice, ..Rules::default() };
            let wish = Wish { rules, ..wish(Provider::Outlook, Some("acme.test"), None) };
            wish.checked(|_| true).map_err(|wrong| wrong.field)
        };
        let one = |text: &str| vec![text.to_owned()];

        let good = checked(Choice { addresses: one("Ann@Acme.test"), ..Choice::default() }).unwrap();
        assert_eq!(good.rules["exclude"]["addresses"], json!(["ann@acme.test"]));
        let bad = Choice { addresses: one("ann"), ..Choice::default() };
        assert_eq!(checked(bad), Err("rules.exclude.addresses".to_owned()));
        let bad = Choice { units: one(""), ..Choice::default() };
        assert_eq!(checked(bad), Err("rules.exclude.units".to_owned()));
        let many = Choice { domains: vec!["acme.test".to_owned(); MOST + 1], ..Choice::default() };
        assert_eq!(checked(many), Err("rules.exclude.domains".to_owned()));
    }
}
