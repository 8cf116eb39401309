//! The settings of our app at Microsoft, for mail and for directories.

use domain::Secret;

/// Microsoft Graph of the national clouds; their tokens are for these resources.
const NATIONAL_CLOUD_GRAPH_URLS: [&str; 3] =
    ["https://graph.microsoft.us", "https://dod-graph.microsoft.us", "https://microsoftgraph.chinacloudapi.cn"];

const GLOBAL_GRAPH_URL: &str = "https://graph.microsoft.com";

/// Microsoft's endpoints and our credentials there. The defaults are Microsoft's own endpoints and no credentials.
#[derive(Debug, Clone)]
pub struct MicrosoftSettings {
    /// URL before `/{directory}/oauth2/v2.0`.
    pub authority_url: String,
    /// Who may consent: `common` is everybody, `organizations` and `consumers` a part of them, and a directory (its id or
    /// one of its domains) its own people. An app that is registered for one directory has to name that one.
    pub authority: String,
    /// URL before `/v1.0`.
    pub graph_url: String,
    pub client_id: Option<String>,
    /// This or the certificate authenticates the app.
    pub client_secret: Option<Secret<String>>,
    /// Text of a file with a certificate and its private key.
    pub certificate: Option<Secret<String>>,
    /// Our endpoints for change notifications. Without them, mailboxes are polled.
    pub push: Option<GraphPush>,
}

/// Our public URLs that Graph calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphPush {
    pub notification_url: String,
    pub lifecycle_url: String,
}

impl MicrosoftSettings {
    /// Returns whether the app's credentials are set.
    pub fn has_client(&self) -> bool {
        self.client_id.is_some() && (self.client_secret.is_some() || self.certificate.is_some())
    }

    /// Returns the resource that tokens are for; for a simulated Graph it is the global one.
    pub(super) fn resource(&self) -> &str {
        if NATIONAL_CLOUD_GRAPH_URLS.contains(&&*self.graph_url) { &self.graph_url } else { GLOBAL_GRAPH_URL }
    }

    pub(super) fn token_url(&self, directory: &str) -> String {
        format!("{}/{directory}/oauth2/v2.0/token", self.authority_url)
    }
}

impl Default for MicrosoftSettings {
    fn default() -> Self {
        Self {
            authority_url: "https://login.microsoftonline.com".to_owned(),
            authority: "common".to_owned(),
            graph_url: GLOBAL_GRAPH_URL.to_owned(),
            client_id: None,
            client_secret: None,
            certificate: None,
            push: None,
        }
    }
}

/// Returns whether a directory can have this name: an id or a domain. It becomes a part of a URL.
pub fn is_directory(name: &str) -> bool {
    let is_reserved = ["common", "organizations", "consumers"].contains(&&*name.to_ascii_lowercase());
    name.len() <= 253 && !is_reserved && name.split('.').all(is_domain_label)
}

fn is_domain_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= 63
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_an_id_or_a_domain() {
        for good in ["9188040d-6c67-4c5b-b112-36a304b66dad", "acme.test", "acme.onmicrosoft.com"] {
            assert!(is_directory(good), "{good}");
        }
        for bad in ["", "common", "Organizations", "consumers", "a/b", "../x", "a b", "a?b", "acme..test", "-a.test"] {
            assert!(!is_directory(bad), "{bad}");
        }
    }

    #[test]
    fn tokens_are_for_the_graph_of_the_called_cloud() {
        for (graph_url, resource) in [
            ("http://127.0.0.1:9000", "https://graph.microsoft.com"),
            ("https://graph.microsoft.us", "https://graph.microsoft.us"),
        ] {
            let settings = MicrosoftSettings { graph_url: graph_url.to_owned(), ..MicrosoftSettings::default() };
            assert_eq!(settings.resource(), resource);
        }
    }
}
