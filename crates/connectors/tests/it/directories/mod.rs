//! People of an organisation as its directory tells of them, against simulators that hold every call against the
//! providers' own descriptions.

mod google;
mod microsoft;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::connector::{Account, Cursors};
use domain::{Connector, ConnectorError, Person};
use serde_json::Value;
use sim::people::{OrganisationTruth, State, TruthPerson};

use crate::endpoint;
use crate::mirror::Fixed;

/// Somebody's view of a directory: a token for it, and the account that is asked for.
async fn opened(connector: &dyn Connector, address: &str, settings: &Value) -> Result<Account, ConnectorError> {
    let mut account = endpoint::account(address, settings);
    let grant = connector.directory_grant(&account).unwrap().await?;
    account.access = Arc::new(Fixed(grant.token.expose().clone()));
    Ok(account)
}

#[derive(Debug, Default)]
struct Told {
    people: BTreeMap<String, Person>,
    gone: BTreeSet<String>,
    pages: usize,
    cursors: Cursors,
}

/// To the last page of what follows the cursors.
async fn told(connector: &dyn Connector, account: &Account, cursors: Cursors) -> Result<Told, ConnectorError> {
    let mut told = Told { cursors, ..Told::default() };
    loop {
        let page = connector.users(account, &told.cursors).unwrap().await?;
        told.pages += 1;
        told.gone.extend(page.gone);
        for person in page.people {
            told.people.insert(person.id.clone(), person);
        }
        told.cursors = page.cursors;
        if page.is_last {
            return Ok(told);
        }
    }
}

async fn members(
    connector: &dyn Connector,
    account: &Account,
    group: &str,
) -> Result<BTreeSet<String>, ConnectorError> {
    let (mut all, mut cursors) = (BTreeSet::new(), Cursors::new());
    loop {
        let page = connector.members(account, group, &cursors).unwrap().await?;
        all.extend(page.members);
        cursors = page.cursors;
        if page.is_last {
            return Ok(all);
        }
    }
}

fn present(truth: &OrganisationTruth) -> BTreeMap<String, TruthPerson> {
    truth.people.clone().into_iter().filter(|(_, person)| person.state == State::Present).collect()
}

/// Everybody who is there, and as they are. Who is archived is nobody's business but Google's.
fn assert_is_true(told: &BTreeMap<String, Person>, truth: &OrganisationTruth, is_suspended: fn(&TruthPerson) -> bool) {
    let present = present(truth);
    assert_eq!(told.keys().collect::<Vec<_>>(), present.keys().collect::<Vec<_>>());
    for (id, is) in &present {
        let person = &told[id];
        assert_eq!(person.address.as_deref(), Some(is.address.as_str()));
        let mut aliases = person.aliases.clone().unwrap_or_default();
        // A guest signs in with a name that is no address of theirs.
        aliases.retain(|alias| !alias.contains("#ext#"));
        assert_eq!(aliases.iter().collect::<BTreeSet<_>>(), is.aliases.iter().collect());
        assert_eq!(person.name.as_deref(), Some(is.name.as_str()));
        assert_eq!(person.is_suspended, Some(is_suspended(is)), "{is:?}");
        assert_eq!((person.is_guest, person.is_licensed), (Some(is.is_guest), Some(is.has_mailbox)));
    }
}

/// An error goes into rows and logs.
fn assert_says_nothing(e: &ConnectorError) {
    let told = format!("{e} {e:?}");
    for private in ["user1", "harbour", "fabrikam", "127.0.0.1", "http:"] {
        assert!(!told.contains(private), "{told}");
    }
}
