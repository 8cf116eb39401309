//! TLS with the certificate authorities of the system, the same for HTTP and IMAP.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

/// Loads the system's authorities once: reading some hundred certificates takes longer than a handshake.
pub fn system_roots() -> &'static RootCertStore {
    static SYSTEM_ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    SYSTEM_ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    })
}

/// Returns the configuration of connections to servers whose certificates lead to these authorities.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
