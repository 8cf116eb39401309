//! Entra directories: one per company, and the one of personal accounts.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::mail::rng::Rng;
use crate::people::domain_of;

/// The directory of personal accounts.
pub const CONSUMERS: &str = "9188040d-6c67-4c5b-b112-36a304b66dad";

const PERSONAL_DOMAINS: [&str; 5] = ["outlook.com", "hotmail.com", "live.com", "msn.com", "outlook.de"];

/// Returns whether an address is a personal account's.
pub fn is_personal(address: &str) -> bool {
    PERSONAL_DOMAINS.contains(&domain_of(address))
}

/// The default permissions of an administrator's consent.
pub const DEFAULT_PERMISSIONS: [&str; 3] = ["Mail.Read", "User.Read.All", "GroupMember.Read.All"];

/// A company's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Directory {
    pub id: String,
    pub domain: String,
    /// Whether people may consent for themselves.
    pub user_consent: bool,
    /// Permissions that an administrator has consented to, by client.
    pub consents: BTreeMap<String, Vec<String>>,
}

/// A scripted change of a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectoryChange {
    pub admin_consent: Option<bool>,
    /// `None`: the test client.
    pub client_id: Option<String>,
    /// `None`: `Mail.Read`, `User.Read.All` and `GroupMember.Read.All`.
    pub permissions: Option<Vec<String>>,
    pub user_consent: Option<bool>,
}

/// The sign-in authority: the tenant segment of identity platform URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    Common,
    Organizations,
    Consumers,
    /// One directory, by its id.
    One(String),
}

impl Authority {
    /// Returns whether accounts of the directory can sign in at the authority.
    pub fn accepts(&self, directory: &str) -> bool {
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
        self.by_id.entry(id.clone()).or_insert_with(|| Directory {
            id: id.clone(),
            domain,
            user_consent: true,
            consents: BTreeMap::new(),
        });
        id
    }

    /// Finds a directory by id or domain.
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

    /// Parses the tenant segment. Returns `None` if there is no such directory.
    pub fn tenant(&self, name: &str) -> Option<Authority> {
        Some(match name {
            "common" => Authority::Common,
            "organizations" => Authority::Organizations,
            "consumers" | CONSUMERS => Authority::Consumers,
            other => Authority::One(self.find(other)?.id.clone()),
        })
    }
}

/// Derives a GUID from a name.
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
    fn directory_is_found_by_id_and_domain() {
        let mut directories = Directories::default();

        let id = directories.of_domain("Contoso.test");

        assert_eq!(directories.of_domain("contoso.test"), id);
        assert_eq!(directories.tenant("CONTOSO.test"), Some(Authority::One(id.clone())));
        assert_eq!(directories.tenant(&id), Some(Authority::One(id)));
        assert_eq!(directories.tenant("fabrikam.test"), None);
        assert!(is_personal("ann@outlook.com") && !is_personal("ann@contoso.test"));
    }

    #[test]
    fn authority_accepts_its_kind_of_account() {
        for (tenant, company, personal) in [
            (Authority::Common, true, true),
            (Authority::Organizations, true, false),
            (Authority::Consumers, false, true),
            (Authority::One("a".to_owned()), true, false),
        ] {
            assert_eq!((tenant.accepts("a"), tenant.accepts(CONSUMERS)), (company, personal), "{tenant:?}");
        }
    }
}
