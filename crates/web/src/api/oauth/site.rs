//! A provider's consent page, as its folder declares it.

use domain::{ConsentDeclaration, Provider, ProviderDeclarations};

/// A provider whose mailboxes are connected by consent in a browser.
#[derive(Debug, Clone, Copy)]
pub struct ConsentSite {
    pub provider: Provider,
    pub consent: &'static ConsentDeclaration,
}

impl ConsentSite {
    /// Lists the providers with consent.
    pub fn list(providers: ProviderDeclarations) -> impl Iterator<Item = Self> {
        providers.iter().filter_map(|declaration| {
            declaration.consent.as_ref().map(|consent| Self { provider: declaration.provider, consent })
        })
    }

    /// Finds the provider of a route by its segment: the provider's own name, or the one in older URLs.
    pub fn find(providers: ProviderDeclarations, segment: &str) -> Option<Self> {
        Self::list(providers).find(|site| site.consent.route == segment || site.provider.as_str() == segment)
    }
}
