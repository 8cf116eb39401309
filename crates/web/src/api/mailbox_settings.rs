//! Checks mailbox settings given over HTTP and applies them to those of the mailbox.

use domain::{ConsentDeclaration, MailboxSettings, Provider, ProviderDeclarations, Secret};
use providers::imap::{self, Auth, Connection};
use providers::outlook::is_directory;
use serde::Deserialize;
use serde_json::Map;
use store::sql::mailboxes::Mailbox;
use utoipa::ToSchema;

use super::problem::Problem;

/// How an IMAP connection is encrypted: `implicit` TLS, `starttls`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    Implicit,
    StartTls,
    None,
}

impl From<Encryption> for imap::Tls {
    fn from(tls: Encryption) -> Self {
        match tls {
            Encryption::Implicit => Self::Implicit,
            Encryption::StartTls => Self::StartTls,
            Encryption::None => Self::None,
        }
    }
}

/// Settings of a new or changed mailbox; each may be absent.
#[derive(Debug, Default)]
pub struct MailboxSettingsInput {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub tls: Option<Encryption>,
    pub user: Option<String>,
    pub password: Option<Secret<String>>,
    pub token: Option<Secret<String>>,
    pub refresh_token: Option<Secret<String>>,
    pub app_only: bool,
    pub directory: Option<String>,
    pub ca_pem: Option<String>,
    pub allow_plaintext: bool,
    pub folders: Option<Vec<String>>,
    pub exclude: Option<Vec<String>>,
    pub interval_seconds: Option<u64>,
    pub bytes_per_day: Option<u64>,
}

const MAX_TEXT_BYTES: usize = 1000;
const MAX_PEM_BYTES: usize = 64 << 10;
const MAX_SECRET_BYTES: usize = 64 << 10;

impl MailboxSettingsInput {
    pub fn for_files(&self) -> Result<MailboxSettings, Problem> {
        let common_fields = [
            ("folders", self.folders.is_some()),
            ("exclude", self.exclude.is_some()),
            ("interval_seconds", self.interval_seconds.is_some()),
        ];
        let mut given = self.imap_fields().into_iter().chain(self.consent_fields()).chain(common_fields);
        match given.find(|(_, is_given)| *is_given) {
            Some((field, _)) => Err(Problem::invalid(field, "is not supported by a mailbox for imported files")),
            None => Ok(MailboxSettings::default()),
        }
    }

    /// Returns the fields of IMAP mailboxes, and whether each is given.
    fn imap_fields(&self) -> [(&'static str, bool); 8] {
        [
            ("host", self.host.is_some()),
            ("port", self.port.is_some()),
            ("tls", self.tls.is_some()),
            ("user", self.user.is_some()),
            ("password", self.password.is_some()),
            ("token", self.token.is_some()),
            ("ca_pem", self.ca_pem.is_some()),
            ("bytes_per_day", self.bytes_per_day.is_some()),
        ]
    }

    /// Returns the fields of Gmail and Outlook mailboxes, and whether each is given.
    fn consent_fields(&self) -> [(&'static str, bool); 3] {
        [
            ("refresh_token", self.refresh_token.is_some()),
            ("app_only", self.app_only),
            ("directory", self.directory.is_some()),
        ]
    }

    /// Requires either the refresh token of the owner's consent, or access by our own app.
    pub fn for_consent(
        self,
        provider: Provider,
        providers: ProviderDeclarations,
    ) -> Result<(MailboxSettings, Option<Secret<String>>), Problem> {
        match (&self.refresh_token, self.app_only) {
            (Some(_), true) => {
                return Err(Problem::invalid("app_only", "cannot be combined with refresh_token"));
            }
            (None, false) => {
                let consent = providers.consent(provider);
                let start = consent.map_or_else(|| "/v1/oauth".to_owned(), ConsentDeclaration::start_path);
                let detail = format!("is required, unless app_only is set; an owner connects a mailbox by {start}");
                return Err(Problem::invalid("refresh_token", detail));
            }
            _ => {}
        }
        self.over_consent(provider, MailboxSettings::default())
    }

    fn over_consent(
        self,
        provider: Provider,
        settings: MailboxSettings,
    ) -> Result<(MailboxSettings, Option<Secret<String>>), Problem> {
        let not_theirs = ("directory", self.directory.is_some() && provider != Provider::Outlook);
        if let Some((field, _)) = self.imap_fields().into_iter().chain([not_theirs]).find(|(_, is_given)| *is_given) {
            let detail = format!("is not supported by {} mailboxes", provider.as_str());
            return Err(Problem::invalid(field, detail));
        }
        if self.directory.is_some() && !self.app_only {
            return Err(Problem::invalid(
                "directory",
                "requires app_only: with a refresh_token the directory is known",
            ));
        }
        if self.directory.as_ref().is_some_and(|directory| !is_directory(directory)) {
            return Err(Problem::invalid("directory", "must be the id of a directory or one of its domains"));
        }
        let mut connection = Map::new();
        if self.app_only {
            connection.insert("app_only".to_owned(), true.into());
        }
        connection.extend(self.directory.clone().map(|directory| ("directory".to_owned(), directory.into())));
        let secret = self.refresh_token.clone();
        let mut settings = settings.overridden_by(self.common_settings()?);
        if secret.is_some() || settings.connection.is_null() {
            settings.connection = connection.into();
        }
        Ok((settings, secret))
    }

    /// Returns the settings that mailboxes of all providers have.
    pub fn common_settings(&self) -> Result<MailboxSettings, Problem> {
        self.check()?;
        Ok(self.given_settings())
    }

    fn given_settings(&self) -> MailboxSettings {
        MailboxSettings {
            folders: self.folders.clone(),
            exclude: self.exclude.clone(),
            interval_seconds: self.interval_seconds,
            bytes_per_day: self.bytes_per_day,
            ..MailboxSettings::default()
        }
    }

    pub fn for_imap(self, address: &str) -> Result<(MailboxSettings, Secret<String>), Problem> {
        let host = self.host.clone().ok_or_else(|| Problem::invalid("host", "is required"))?;
        let tls = self.tls.map_or(imap::Tls::Implicit, imap::Tls::from);
        let connection = Connection {
            host,
            port: tls.usual_port(),
            tls,
            user: address.to_owned(),
            auth: Auth::default(),
            authority: None,
            compress: None,
        };
        let (settings, secret) = self.over_connection(connection, MailboxSettings::default(), true)?;
        let secret = secret.ok_or_else(|| Problem::invalid("password", "is required, unless a token is given"))?;
        Ok((settings, secret))
    }

    /// Applies the given settings to those of an existing mailbox.
    pub fn over(self, mailbox: &Mailbox) -> Result<(MailboxSettings, Option<Secret<String>>), Problem> {
        match mailbox.provider {
            Provider::Imap => {}
            provider @ (Provider::Gmail | Provider::Outlook) => {
                return self.over_consent(provider, mailbox.settings.clone());
            }
            Provider::Files => return self.for_files().map(|_| (mailbox.settings.clone(), None)),
        }
        let connection = serde_json::from_value(mailbox.settings.connection.clone()).map_err(anyhow::Error::from)?;
        self.over_connection(connection, mailbox.settings.clone(), false)
    }

    fn over_connection(
        self,
        mut connection: Connection,
        settings: MailboxSettings,
        is_new: bool,
    ) -> Result<(MailboxSettings, Option<Secret<String>>), Problem> {
        if let Some((field, _)) = self.consent_fields().into_iter().find(|(_, is_given)| *is_given) {
            return Err(Problem::invalid(field, "is not supported by IMAP mailboxes"));
        }
        let given = self.common_settings()?;
        let before = connection.clone();
        if let Some(host) = self.host {
            connection.host = host;
        }
        if let Some(tls) = self.tls {
            connection.tls = tls.into();
        }
        connection.port = match (self.port, self.tls) {
            (Some(port), _) => port,
            (None, Some(_)) if is_new => connection.tls.usual_port(),
            (None, _) => connection.port,
        };
        if let Some(user) = self.user {
            connection.user = user;
        }
        if self.ca_pem.is_some() {
            connection.authority = self.ca_pem;
        }
        if connection.tls == imap::Tls::None && !self.allow_plaintext && !imap::is_this_machine(&connection.host) {
            let detail = "must be starttls or implicit, since the password would be sent unencrypted; set allow_plaintext to allow that";
            return Err(Problem::invalid("tls", detail));
        }
        let secret = match (self.password, self.token) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("token", "cannot be combined with password"));
            }
            (Some(password), None) => {
                connection.auth = Auth::Password;
                Some(password)
            }
            (None, Some(token)) => {
                connection.auth = Auth::Token;
                Some(token)
            }
            (None, None) => None,
        };
        // The stored credentials must not be sent to a server that the caller chooses.
        if !is_new && secret.is_none() && !is_same_login(&before, &connection) {
            let detail = "must be given to change host, port, tls, user or ca_pem, unless a token is given";
            return Err(Problem::invalid("password", detail));
        }
        let connection = serde_json::to_value(connection).map_err(anyhow::Error::from)?;
        Ok((MailboxSettings { connection, ..settings.overridden_by(given) }, secret))
    }

    fn check(&self) -> Result<(), Problem> {
        if self.host.as_ref().is_some_and(|host| !is_plain(host) || host.contains([' ', '/', '@'])) {
            return Err(Problem::invalid("host", "must be a host name, such as imap.acme.test"));
        }
        if self.user.as_ref().is_some_and(|user| !is_plain(user)) {
            return Err(Problem::invalid("user", format!("must have 1 to {MAX_TEXT_BYTES} bytes on one line")));
        }
        for (field, secret) in
            [("password", &self.password), ("token", &self.token), ("refresh_token", &self.refresh_token)]
        {
            if secret.as_ref().is_some_and(|secret| !is_secret(secret.expose())) {
                return Err(Problem::invalid(field, format!("must have 1 to {MAX_SECRET_BYTES} bytes on one line")));
            }
        }
        if self.port == Some(0) {
            return Err(Problem::invalid("port", "must be at least 1"));
        }
        if self.ca_pem.as_ref().is_some_and(|pem| pem.len() > MAX_PEM_BYTES || !imap::has_ca_certificate(pem)) {
            let detail = format!(
                "must contain a certificate in PEM, which begins with -----BEGIN CERTIFICATE-----, and have at most \
                 {MAX_PEM_BYTES} bytes"
            );
            return Err(Problem::invalid("ca_pem", detail));
        }
        self.given_settings().check()?;
        Ok(())
    }
}

/// Returns whether credentials that are sent to one connection would be sent to the same account of the same server.
fn is_same_login(one: &Connection, other: &Connection) -> bool {
    (&one.host, one.port, one.tls, &one.user, &one.authority)
        == (&other.host, other.port, other.tls, &other.user, &other.authority)
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control)
}

fn is_secret(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_SECRET_BYTES && !text.contains(['\0', '\r', '\n'])
}
