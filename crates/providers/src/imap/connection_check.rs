//! Checks a connection for the person who sets a mailbox up.

use domain::connector::{ConnectorAccount, FolderRole};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::client::{Client, Credentials, ImapError, ImapFolder};
use super::settings::Connection;

/// Connects, logs in and looks for the INBOX. Fails with a sentence that explains what is wrong.
pub async fn check_connection(account: &ConnectorAccount) -> Result<(), String> {
    let connection = Connection::of(account).map_err(|e| e.to_string())?;
    let credentials = connection.credentials(account.secret.as_ref()).map_err(|e| e.to_string())?;
    let folders = list_folders(&connection, &credentials).await;
    let folders = folders.map_err(|e| e.explain(&connection.host, connection.port))?;
    if folders.iter().any(|folder| folder.role() == Some(FolderRole::Inbox) && folder.is_selectable()) {
        return Ok(());
    }
    let Connection { host, port, user, .. } = &connection;
    Err(format!("the account of {user} at {host}:{port} has no INBOX: perhaps it is no mailbox"))
}

async fn list_folders(connection: &Connection, credentials: &Credentials) -> Result<Vec<ImapFolder>, ImapError> {
    let mut client = Client::connect(connection.settings(), credentials).await?;
    let folders = client.list().await?;
    client.log_out().await;
    Ok(folders)
}

/// Returns whether a text has a certificate that can be used as a trust anchor.
pub fn has_ca_certificate(pem: &str) -> bool {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    certificates.is_ok_and(|certificates| RootCertStore::empty().add_parsable_certificates(certificates).0 > 0)
}
