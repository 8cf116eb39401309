//! TLS with the authorities that the system trusts, and with one of the operator's own.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{ImapError, Step};
use super::wire::Duplex;

/// Why there is no TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    Expired,
    /// Nobody that is trusted has signed the server's certificate.
    UnknownIssuer,
    /// The certificate is for another name.
    NameMismatch,
    BadCertificate,
    /// What came was no TLS at all.
    NotTls,
    /// No version or cipher that both know, or a refusal by the server.
    Refused,
    /// The name of the host cannot be in a certificate.
    BadName,
    /// The operator's own certificates cannot be read.
    BadAuthority,
}

impl TlsFault {
    pub(super) fn for_people(self) -> &'static str {
        match self {
            Self::Expired => "its certificate has expired, or is not valid yet",
            Self::UnknownIssuer => "its certificate is signed by nobody we trust; name the authority if it is your own",
            Self::NameMismatch => "its certificate is for another name; use the name that is in the certificate",
            Self::BadCertificate => "its certificate is not valid",
            Self::NotTls => "it does not speak TLS on this port; use STARTTLS, or the port for TLS (usually 993)",
            Self::Refused => "it refused, or has no TLS that is safe to use (1.2 or later)",
            Self::BadName => "this name of a server cannot be in a certificate",
            Self::BadAuthority => "the certificates of your own authority cannot be read as PEM",
        }
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the certificate has expired",
            Self::UnknownIssuer => "the certificate's issuer is unknown",
            Self::NameMismatch => "the certificate is for another name",
            Self::BadCertificate => "the certificate is not valid",
            Self::NotTls => "the server does not speak TLS",
            Self::Refused => "the server refused",
            Self::BadName => "the name cannot be in a certificate",
            Self::BadAuthority => "the own authority cannot be read",
        })
    }
}

/// TLS over a connection. The caller has the deadline.
pub async fn secure(
    plain: Box<dyn Duplex>,
    host: &str,
    own: Option<&str>,
) -> Result<TlsStream<Box<dyn Duplex>>, ImapError> {
    let config = match own {
        None => Arc::clone(usual()?),
        Some(pem) => configure(with_own(pem)?)?,
    };
    // An address in brackets is how people write one of IPv6 before a port.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| ImapError::Tls(TlsFault::BadName))?;
    TlsConnector::from(config).connect(name, plain).await.map_err(|e| fault(&e))
}

/// Reading the system's some hundred certificates takes longer than a handshake, so it happens once.
fn system() -> &'static RootCertStore {
    static SYSTEM: OnceLock<RootCertStore> = OnceLock::new();
    SYSTEM.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    })
}

/// One for all, so that a second connection to a server resumes the session of the first.
fn usual() -> Result<&'static Arc<ClientConfig>, ImapError> {
    static USUAL: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = USUAL.get() {
        return Ok(config);
    }
    let config = configure(system().clone())?;
    Ok(USUAL.get_or_init(|| config))
}

fn with_own(pem: &str) -> Result<RootCertStore, ImapError> {
    let unreadable = ImapError::Tls(TlsFault::BadAuthority);
    let Ok(certificates) = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>() else {
        return Err(unreadable);
    };
    let mut roots = system().clone();
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err(unreadable),
        _ => Ok(roots),
    }
}

fn configure(roots: RootCertStore) -> Result<Arc<ClientConfig>, ImapError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| ImapError::Tls(TlsFault::Refused))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn fault(error: &io::Error) -> ImapError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => ImapError::Tls(kind(error)),
        None => ImapError::Io { step: Step::Tls, kind: error.kind() },
    }
}

fn kind(error: &rustls::Error) -> TlsFault {
    use rustls::Error as E;
    match error {
        E::InvalidCertificate(certificate) => match certificate {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => TlsFault::Expired,
            CertificateError::UnknownIssuer => TlsFault::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsFault::NameMismatch
            }
            _ => TlsFault::BadCertificate,
        },
        E::InvalidMessage(_) => TlsFault::NotTls,
        _ => TlsFault::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_is_told_apart() {
        let certificate = |error| kind(&rustls::Error::InvalidCertificate(error));

        assert_eq!(certificate(CertificateError::Expired), TlsFault::Expired);
        assert_eq!(certificate(CertificateError::UnknownIssuer), TlsFault::UnknownIssuer);
        assert_eq!(certificate(CertificateError::NotValidForName), TlsFault::NameMismatch);
        assert_eq!(certificate(CertificateError::BadSignature), TlsFault::BadCertificate);
    }

    #[test]
    fn an_authority_that_cannot_be_read_is_refused() {
        for pem in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(with_own(pem), Err(ImapError::Tls(TlsFault::BadAuthority))), "{pem}");
        }
    }
}
