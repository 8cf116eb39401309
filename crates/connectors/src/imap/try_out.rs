//! Whether an account can be used at all, told to the person who connects it.

use domain::connector::{Account, FolderRole};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::client::{Client, ImapError};
use super::settings::Connection;

/// Connects, logs in and looks for the INBOX. If that fails, one sentence that says what is wrong.
pub async fn try_out(account: &Account) -> Result<(), String> {
    let connection = Connection::of(account).map_err(|e| e.to_string())?;
    let credentials = connection.credentials(account.secret.as_ref()).map_err(|e| e.to_string())?;
    let explain = |e: ImapError| e.explain(&connection.host, connection.port);
    let mut client = Client::connect(connection.settings(), &credentials).await.map_err(explain)?;
    let folders = client.list().await.map_err(explain)?;
    client.log_out().await;
    if folders.iter().any(|folder| folder.role() == Some(FolderRole::Inbox) && folder.is_selectable()) {
        return Ok(());
    }
    let Connection { host, port, user, .. } = &connection;
    Err(format!("the account of {user} at {host}:{port} has no INBOX: perhaps it is no mailbox"))
}

/// Whether a text has a certificate in it that can be trusted.
pub fn has_authority(pem: &str) -> bool {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    certificates.is_ok_and(|certificates| RootCertStore::empty().add_parsable_certificates(certificates).0 > 0)
}
