//! Where accounts belong: a company's directory, or the one place of all personal accounts.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::mail::rng::Rng;
use crate::people::domain_of;

/// The directory of personal accounts.
pub const CONSUMERS: &str = "9188040d-6c67-4c5b-b112-36a304b66dad";

const PERSONAL: [&str; 5] = ["outlook.com", "hotmail.com", "live.com", "msn.com", "outlook.de"];

/// Whether an address is nobody's but the one's who has it.
pub fn is_personal(address: &str) -> bool {
    PERSONAL.contains(&domain_of(address))
}

/// What an administrator's consent allows unless it is said.
pub const PERMISSIONS: [&str; 3] = ["Mail.Read", "User.Read.All", "GroupMember.Read.All"];

/// A company at Microsoft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Directory {
    pub id: String,
    pub domain: String,
    /// Whether people may consent for themselves.
    pub user_consent: bool,
    /// What an administrator has allowed, by client.
    pub consents: BTreeMap<String, Vec<String>>,
}

/// What a script says of a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectoryChange {
    pub admin_consent: Option<bool>,
    /// Nothing: the test client.
    pub client_id: Option<String>,
    /// Nothing: `Mail.Read`, `User.Read.All` and `GroupMember.Read.All`.
    pub permissions: Option<Vec<String>>,
    pub user_consent: Option<bool>,
}

/// The part of an address of the identity platform that says whose sign-in it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenant {
    Common,
    Organizations,
    Consumers,
    /// One directory, by its id.
    One(String),
}

impl Tenant {
    /// Whether accounts of this directory can sign in there.
    pub fn takes(&self, directory: &str) -> bool {
        match self {
            Self::Common => true,
            Self::Organizations => directory != CONSUMERS,
            Self::Consumers => directory == CONSUMERS,
            Self::One(id) => id == directory,
        }
    }
}

#[derive(Debug, Default)]
pub struct Directories {
    by_id: HashMap<String, Directory>,
}

impl Directories {
    pub fn of_domain(&mut self, domain: &str) -> String {
        let domain = domain.to_lowercase();
        let id = guid(&format!("directory {domain}"));
        let new = || Directory { id: id.clone(), domain, user_consent: true, consents: BTreeMap::new() };
        self.by_id.entry(id.clone()).or_insert_with(new);
        id
    }

    /// By id or domain.
    pub fn find(&self, name: &str) -> Option<&Directory> {
        let name = name.to_lowercase();
        self.by_id.get(&name).or_else(|| self.by_id.get(&guid(&format!("directory {name}"))))
    }

    pub fn find_mut(&mut self, name: &str) -> Option<&mut Directory> {
        let id = self.find(name)?.id.clone();
        self.by_id.get_mut(&id)
    }

    pub fn list(&self) -> Vec<Directory> {
        let mut all: Vec<Directory> = self.by_id.values().cloned().collect();
        all.sort_by(|one, other| one.domain.cmp(&other.domain));
        all
    }

    /// Nothing: there is no such directory.
    pub fn tenant(&self, name: &str) -> Option<Tenant> {
        Some(match name {
            "common" => Tenant::Common,
            "organizations" => Tenant::Organizations,
            "consumers" | CONSUMERS => Tenant::Consumers,
            other => Tenant::One(self.find(other)?.id.clone()),
        })
    }
}

/// The same for the same name.
pub fn guid(name: &str) -> String {
    let seed = name
        .bytes()
        .fold(14_695_981_039_346_656_037_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(1_099_511_628_211));
    drawn_guid(&mut Rng::new(seed))
}

pub fn drawn_guid(rng: &mut Rng) -> String {
    let [a, b, c, d, e] = [8, 4, 3, 3, 12].map(|digits| rng.hex(digits));
    format!("{a}-{b}-4{c}-a{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_by_its_id_and_by_its_domain() {
        let mut directories = Directories::default();

        let id = directories.of_domain("Contoso.test");

        assert_eq!(directories.of_domain("contoso.test"), id);
        assert_eq!(directories.tenant("CONTOSO.test"), Some(Tenant::One(id.clone())));
        assert_eq!(directories.tenant(&id), Some(Tenant::One(id)));
        assert_eq!(directories.tenant("fabrikam.test"), None);
        assert!(is_personal("ann@outlook.com") && !is_personal("ann@contoso.test"));
    }

    #[test]
    fn personal_accounts_and_those_of_companies_sign_in_at_different_places() {
        for (tenant, company, personal) in [
            (Tenant::Common, true, true),
            (Tenant::Organizations, true, false),
            (Tenant::Consumers, false, true),
            (Tenant::One("a".to_owned()), true, false),
        ] {
            assert_eq!((tenant.takes("a"), tenant.takes(CONSUMERS)), (company, personal), "{tenant:?}");
        }
    }
}
