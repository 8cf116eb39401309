//! What all of Microsoft's services have in common: where they are, and who we are there.

mod certificate;
mod oauth;
mod refusal;

use domain::Secret;

pub use certificate::{Certificate, NotACertificate};
pub use oauth::MicrosoftOAuth;

/// Clouds of their own, whose Graph is the resource that their tokens are for.
const OTHER_CLOUDS: [&str; 3] =
    ["https://graph.microsoft.us", "https://dod-graph.microsoft.us", "https://microsoftgraph.chinacloudapi.cn"];

const GRAPH: &str = "https://graph.microsoft.com";

/// Where Microsoft is, and as whom we call it. The defaults are Microsoft's own addresses, and nobody.
#[derive(Debug, Clone)]
pub struct MicrosoftSettings {
    /// The base before `/{directory}/oauth2/v2.0`.
    pub authority_url: String,
    /// Who may say yes: `common` is everybody, `organizations` and `consumers` a part of them, and a directory (its id or
    /// a domain of it) its own people. An app that was registered for one directory has to name that.
    pub authority: String,
    /// The base before `/v1.0`.
    pub graph_url: String,
    pub client_id: Option<String>,
    /// One of these two says that we are who we say.
    pub client_secret: Option<Secret<String>>,
    /// The text of a file with a certificate and its private key.
    pub certificate: Option<Secret<String>>,
    /// Where Graph tells what happens. Without it nobody tells, and mailboxes are looked at by the clock.
    pub push: Option<GraphPush>,
}

/// Where we are reached by Graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphPush {
    pub notification_url: String,
    pub lifecycle_url: String,
}

impl MicrosoftSettings {
    /// Whether we are somebody there.
    pub fn has_client(&self) -> bool {
        self.client_id.is_some() && (self.client_secret.is_some() || self.certificate.is_some())
    }

    /// What tokens are for. A simulated Graph is still that.
    fn resource(&self) -> &str {
        if OTHER_CLOUDS.contains(&&*self.graph_url) { &self.graph_url } else { GRAPH }
    }

    fn token_url(&self, directory: &str) -> String {
        format!("{}/{directory}/oauth2/v2.0/token", self.authority_url)
    }
}

impl Default for MicrosoftSettings {
    fn default() -> Self {
        Self {
            authority_url: "https://login.microsoftonline.com".to_owned(),
            authority: "common".to_owned(),
            graph_url: GRAPH.to_owned(),
            client_id: None,
            client_secret: None,
            certificate: None,
            push: None,
        }
    }
}

/// Whether a directory can have this name: an id, or a domain. It becomes a part of an address.
pub fn is_directory(name: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    let is_everybody = ["common", "organizations", "consumers"].contains(&&*name.to_ascii_lowercase());
    name.len() <= 253 && !is_everybody && name.split('.').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_an_id_or_a_domain_and_nothing_that_leads_elsewhere() {
        for good in ["9188040d-6c67-4c5b-b112-36a304b66dad", "acme.test", "acme.onmicrosoft.com"] {
            assert!(is_directory(good), "{good}");
        }
        for bad in ["", "common", "Organizations", "consumers", "a/b", "../x", "a b", "a?b", "acme..test", "-a.test"] {
            assert!(!is_directory(bad), "{bad}");
        }
    }

    #[test]
    fn tokens_are_for_the_graph_of_the_cloud_that_is_called() {
        let of = |graph_url: &str| {
            let settings = MicrosoftSettings { graph_url: graph_url.to_owned(), ..MicrosoftSettings::default() };
            settings.resource().to_owned()
        };
        assert_eq!(of("http://127.0.0.1:9000"), "https://graph.microsoft.com");
        assert_eq!(of("https://graph.microsoft.us"), "https://graph.microsoft.us");
    }
}
