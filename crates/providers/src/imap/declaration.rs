//! What IMAP declares to the rest of the product: its servers neither push nor ask for consent.

use domain::{Provider, ProviderDeclaration};

pub static DECLARATION: ProviderDeclaration =
    ProviderDeclaration { provider: Provider::Imap, push: None, consent: None, directory: None };
