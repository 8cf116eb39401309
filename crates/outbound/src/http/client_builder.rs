//! What all our HTTP clients have in common.

use reqwest::{Client, ClientBuilder, redirect};

use crate::tls;

#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be built: {0}")]
pub struct HttpClientError(String);

impl HttpClientError {
    pub fn new(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<reqwest::Error> for HttpClientError {
    fn from(e: reqwest::Error) -> Self {
        Self(e.without_url().to_string())
    }
}

/// Returns the builder of every client: HTTP/1.1 over TLS with our roots, without redirects.
pub(super) fn builder() -> Result<ClientBuilder, HttpClientError> {
    let roots = tls::system_roots().clone();
    if roots.is_empty() {
        let why = "the system has no CA certificates; install the package ca-certificates, or set SSL_CERT_FILE";
        return Err(HttpClientError::new(why));
    }
    let mut config = tls::client_config(roots).map_err(|e| HttpClientError(e.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    #[expect(clippy::disallowed_methods, reason = "this is the one place that makes clients")]
    let builder = Client::builder();
    Ok(builder
        .tls_backend_preconfigured(config)
        // A response that waits to be read must not hold up others on the same connection.
        .http1_only()
        // The target of a redirect is not checked, and an access token must not be sent to another server.
        .redirect(redirect::Policy::none()))
}
