//! What each provider's folder declares to the rest of the product: as what it is known, where people consent, where it
//! pushes, and where its directories are. Only the binary knows the folders; others look declarations up.

use serde::{Deserialize, Serialize};

use crate::Provider;
use crate::connection_field::ConnectionField;
use crate::connection_input::ConnectionDeclaration;

/// A provider, as its folder declares it.
#[derive(Debug)]
pub struct ProviderDeclaration {
    pub provider: Provider,
    /// How its mailboxes are reached.
    pub connection: ConnectionDeclaration,
    /// Where its pushes arrive. `None`: it does not push.
    pub push: Option<PushDeclaration>,
    /// How people connect mailboxes in a browser. `None`: they have a password instead.
    pub consent: Option<ConsentDeclaration>,
    /// How its directories are configured. `None`: it has none.
    pub directory: Option<DirectoryDeclaration>,
}

/// A provider that calls `/v1/hooks/{provider}`.
#[derive(Debug)]
pub struct PushDeclaration {
    /// OpenAPI document with the further paths that are the same endpoint, and its own schemas. They are routes as well.
    pub routes: &'static str,
    /// What is said to a call while its sender is not configured.
    pub not_configured: &'static str,
}

/// A provider whose mailboxes are connected by consent in a browser.
#[derive(Debug)]
pub struct ConsentDeclaration {
    /// Name of the company for people.
    pub name: &'static str,
    /// The segment of `/v1/oauth/{segment}/callback` that is registered in the provider's console, besides the provider's
    /// own name.
    pub route: &'static str,
    /// What is connected, for the help of commands.
    pub about: &'static str,
    pub not_configured: &'static str,
    /// What to do when the provider gave no refresh token.
    pub no_refresh_token: &'static str,
    /// Whether an administrator can admit our app to a whole directory.
    pub has_admin_consent: bool,
}

/// A provider with directories.
#[derive(Debug)]
pub struct DirectoryDeclaration {
    /// Checks where a directory is, and returns it in canonical form.
    pub check: fn(DirectoryLocation) -> Result<DirectoryLocation, InvalidField>,
}

/// Where a directory is, and as whom it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectoryLocation {
    /// The directory's id or one of its domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The address of the administrator whom our app impersonates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub administrator: Option<String>,
}

/// A field that is not valid, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct InvalidField {
    pub field: String,
    pub why: String,
}

impl InvalidField {
    pub fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }

    /// Returns why, with the names of other fields, which stand in braces, as `name` spells them.
    pub fn why_with(&self, name: impl Fn(&str) -> String) -> String {
        let mut parts = self.why.split('{');
        let mut why = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (field, rest) = part.split_once('}').unwrap_or((part, ""));
            why.push_str(&name(field));
            why.push_str(rest);
        }
        why
    }
}

/// The declarations of all providers. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct ProviderDeclarations(pub &'static [&'static ProviderDeclaration]);

impl ProviderDeclarations {
    pub fn iter(self) -> impl Iterator<Item = &'static ProviderDeclaration> {
        self.0.iter().copied()
    }

    /// Finds a provider's declaration; imported files have none.
    pub fn find(self, provider: Provider) -> Option<&'static ProviderDeclaration> {
        self.iter().find(|declaration| declaration.provider == provider)
    }

    pub fn consent(self, provider: Provider) -> Option<&'static ConsentDeclaration> {
        self.find(provider)?.consent.as_ref()
    }

    pub fn directory(self, provider: Provider) -> Option<&'static DirectoryDeclaration> {
        self.find(provider)?.directory.as_ref()
    }

    /// Finds a field by name in the connections of all providers.
    pub fn find_field(self, name: &str) -> Option<&'static ConnectionField> {
        self.iter().find_map(|declaration| declaration.connection.field(name))
    }

    /// Lists the fields of all connections, each name once.
    pub fn connection_fields(self) -> Vec<&'static ConnectionField> {
        let mut fields: Vec<&'static ConnectionField> = Vec::new();
        for field in self.iter().flat_map(|declaration| declaration.connection.fields.iter().copied()) {
            if !fields.iter().any(|known| known.name == field.name) {
                fields.push(field);
            }
        }
        fields
    }

    /// Finds the provider that pushes to `/v1/hooks/{name}`.
    pub fn find_by_name(self, name: &str) -> Option<&'static ProviderDeclaration> {
        self.find(Provider::parse(name)?)
    }
}

impl ConsentDeclaration {
    /// Returns the path of the route that starts the consent.
    pub fn start_path(&self) -> String {
        format!("/v1/oauth/{}/start", self.route)
    }

    /// Returns the path that the provider redirects to, as registered in its console.
    pub fn callback_path(&self) -> String {
        format!("/v1/oauth/{}/callback", self.route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_fields_are_spelt_as_the_door_spells_them() {
        let invalid = InvalidField::new("tls", "must be on; set {allow_plaintext} to allow that, or {x}");

        assert_eq!(invalid.why_with(str::to_owned), "must be on; set allow_plaintext to allow that, or x");
        let options = invalid.why_with(|field| format!("--{}", field.replace('_', "-")));
        assert_eq!(options, "must be on; set --allow-plaintext to allow that, or --x");
    }
}
