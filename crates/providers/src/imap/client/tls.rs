//! TLS with the certificate authorities of the system and, optionally, of the operator.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use outbound::tls::{client_config, system_roots};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{ImapError, Step};
use super::wire::Duplex;

/// Why the TLS handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    Expired,
    /// No trusted authority has signed the server's certificate.
    UnknownIssuer,
    /// The certificate is for another name.
    NameMismatch,
    BadCertificate,
    /// The server does not speak TLS.
    NotTls,
    /// There is no common version or cipher, or the server refuses.
    Refused,
    /// The host name is not valid in a certificate.
    BadName,
    /// The operator's own certificates cannot be read.
    BadAuthority,
}

impl TlsFault {
    pub(super) fn for_people(self) -> &'static str {
        match self {
            Self::Expired => "its certificate has expired, or is not valid yet",
            Self::UnknownIssuer => {
                "its certificate is not signed by a trusted authority; for your own authority give its certificate \
                 (ca_pem, --ca-file)"
            }
            Self::NameMismatch => "its certificate is for another name; use the name that is in the certificate",
            Self::BadCertificate => "its certificate is not valid",
            Self::NotTls => "it does not speak TLS on this port; use STARTTLS, or the port for TLS (usually 993)",
            Self::Refused => "it refused, or has no TLS that is safe to use (1.2 or later)",
            Self::BadName => "the host name cannot be in a certificate",
            Self::BadAuthority => "the CA certificate cannot be read as PEM",
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
            Self::BadName => "the host name cannot be in a certificate",
            Self::BadAuthority => "the CA certificate cannot be read",
        })
    }
}

/// Does the TLS handshake over a connection. The caller sets the deadline.
pub async fn secure(
    plain: Box<dyn Duplex>,
    host: &str,
    custom_ca: Option<&str>,
) -> Result<TlsStream<Box<dyn Duplex>>, ImapError> {
    let config = match custom_ca {
        None => Arc::clone(default_config()?),
        Some(pem) => config_with(roots_with_custom_ca(pem)?)?,
    };
    // People write an IPv6 address in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| ImapError::Tls(TlsFault::BadName))?;
    TlsConnector::from(config).connect(name, plain).await.map_err(|e| tls_error(&e))
}

/// Returns the configuration that all connections share, so that they can resume TLS sessions.
fn default_config() -> Result<&'static Arc<ClientConfig>, ImapError> {
    static DEFAULT_CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = DEFAULT_CONFIG.get() {
        return Ok(config);
    }
    let config = config_with(system_roots().clone())?;
    Ok(DEFAULT_CONFIG.get_or_init(|| config))
}

fn roots_with_custom_ca(pem: &str) -> Result<RootCertStore, ImapError> {
    let unreadable = ImapError::Tls(TlsFault::BadAuthority);
    let Ok(certificates) = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>() else {
        return Err(unreadable);
    };
    let mut roots = system_roots().clone();
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err(unreadable),
        _ => Ok(roots),
    }
}

fn config_with(roots: RootCertStore) -> Result<Arc<ClientConfig>, ImapError> {
    let config = client_config(roots).map_err(|_| ImapError::Tls(TlsFault::Refused))?;
    Ok(Arc::new(config))
}

fn tls_error(error: &io::Error) -> ImapError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => ImapError::Tls(tls_fault(error)),
        None => ImapError::Io { step: Step::Tls, kind: error.kind() },
    }
}

fn tls_fault(error: &rustls::Error) -> TlsFault {
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
    fn certificate_errors_are_distinguished() {
        for (error, fault) in [
            (CertificateError::Expired, TlsFault::Expired),
            (CertificateError::UnknownIssuer, TlsFault::UnknownIssuer),
            (CertificateError::NotValidForName, TlsFault::NameMismatch),
            (CertificateError::BadSignature, TlsFault::BadCertificate),
        ] {
            assert_eq!(tls_fault(&rustls::Error::InvalidCertificate(error)), fault);
        }
    }

    #[test]
    fn unreadable_authority_is_an_error() {
        for pem in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(roots_with_custom_ca(pem), Err(ImapError::Tls(TlsFault::BadAuthority))), "{pem}");
        }
    }
}
