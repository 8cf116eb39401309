//! What IMAP declares to the rest of the product: its servers neither push nor ask for consent.

use domain::{Provider, ProviderDeclaration};

use super::connection_fields::CONNECTION;

pub static DECLARATION: ProviderDeclaration = ProviderDeclaration {
    provider: Provider::Imap,
    connection: CONNECTION,
    push: None,
    consent: None,
    directory: None,
};
