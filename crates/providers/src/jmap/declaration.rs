//! What JMAP declares to the rest of the product. Its servers are listened to: they neither call us nor ask for consent.

use domain::{Provider, ProviderDeclaration};

use super::connection_fields::CONNECTION;

pub static DECLARATION: ProviderDeclaration = ProviderDeclaration {
    provider: Provider::Jmap,
    connection: CONNECTION,
    push: None,
    consent: None,
    directory: None,
};
