//! How a mailbox is reached and what is wanted of it, as somebody says it and as it is kept.

use connectors::imap::{self, Auth, Connection};
use connectors::microsoft::is_directory;
use domain::{Provider, Secret};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::sql::mailboxes::Mailbox;
use utoipa::ToSchema;

use super::oauth::Site;
use super::problem::Problem;

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

/// What somebody says of a mailbox; everything may be left out.
#[derive(Debug, Default)]
pub struct Wanted {
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

/// Nobody looks at a mailbox less often than once in a month.
const LONGEST_INTERVAL: u64 = 30 * 86_400;
const MOST_BYTES_PER_DAY: u64 = 1 << 40;
const LONGEST_TEXT: usize = 1000;
const MOST_FOLDERS: usize = 1000;
const LONGEST_PEM: usize = 64 << 10;

impl Wanted {
    pub fn for_files(&self) -> Result<Value, Problem> {
        let of_any = [
            ("folders", self.folders.is_some()),
            ("exclude", self.exclude.is_some()),
            ("interval_seconds", self.interval_seconds.is_some()),
        ];
        let mut said = self.of_imap().into_iter().chain(self.of_consent()).chain(of_any);
        match said.find(|(_, is_said)| *is_said) {
            Some((field, _)) => Err(Problem::invalid(field, "a mailbox for files is at no server")),
            None => Ok(json!({})),
        }
    }

    /// What only a server that speaks IMAP has.
    fn of_imap(&self) -> [(&'static str, bool); 8] {
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

    /// What only a mailbox has that somebody lets us into.
    fn of_consent(&self) -> [(&'static str, bool); 3] {
        [
            ("refresh_token", self.refresh_token.is_some()),
            ("app_only", self.app_only),
            ("directory", self.directory.is_some()),
        ]
    }

    /// Either what its owner's consent gave, or the right that their organization gave to our app.
    pub fn for_consent(self, provider: Provider) -> Result<(Value, Option<Secret<String>>), Problem> {
        match (&self.refresh_token, self.app_only) {
            (Some(_), true) => {
                return Err(Problem::invalid("app_only", "there is a refresh_token already; send one of them"));
            }
            (None, false) => {
                let start = Site::of(provider).map_or("/v1/oauth", |site| site.start);
                let detail = format!("there has to be one, or app_only; an owner connects it under {start}");
                return Err(Problem::invalid("refresh_token", detail));
            }
            _ => {}
        }
        self.over_consent(provider, Map::new())
    }

    fn over_consent(
        self,
        provider: Provider,
        mut settings: Map<String, Value>,
    ) -> Result<(Value, Option<Secret<String>>), Problem> {
        let not_theirs = ("directory", self.directory.is_some() && provider != Provider::Outlook);
        if let Some((field, _)) = self.of_imap().into_iter().chain([not_theirs]).find(|(_, is_said)| *is_said) {
            let detail = format!("a mailbox at {} has no such thing", provider.as_str());
            return Err(Problem::invalid(field, detail));
        }
        if self.directory.is_some() && !self.app_only {
            return Err(Problem::invalid("directory", "it is for app_only: an owner's consent knows where it is from"));
        }
        if self.directory.as_ref().is_some_and(|directory| !is_directory(directory)) {
            return Err(Problem::invalid("directory", "it is the id of a directory, or one of its domains"));
        }
        let mut connection = Map::new();
        if self.app_only {
            connection.insert("app_only".to_owned(), true.into());
        }
        connection.extend(self.directory.clone().map(|directory| ("directory".to_owned(), directory.into())));
        let secret = self.refresh_token.clone();
        settings.extend(self.of_any_mailbox()?);
        if secret.is_some() || !settings.contains_key("connection") {
            settings.insert("connection".to_owned(), connection.into());
        }
        Ok((Value::Object(settings), secret))
    }

    /// What is wanted of a mailbox, wherever it is.
    pub fn of_any_mailbox(self) -> Result<Map<String, Value>, Problem> {
        self.check()?;
        let mut settings = Map::new();
        for (key, value) in [("folders", self.folders), ("exclude", self.exclude)] {
            if let Some(value) = value {
                settings.insert(key.to_owned(), json!(value));
            }
        }
        for (key, value) in [("interval_seconds", self.interval_seconds), ("bytes_per_day", self.bytes_per_day)] {
            if let Some(value) = value {
                settings.insert(key.to_owned(), value.into());
            }
        }
        Ok(settings)
    }

    pub fn for_imap(self, address: &str) -> Result<(Value, Secret<String>), Problem> {
        let host = self.host.clone().ok_or_else(|| Problem::invalid("host", "missing field `host`"))?;
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
        let (settings, secret) = self.over_connection(connection, Map::new(), true)?;
        let secret = secret.ok_or_else(|| Problem::invalid("password", "there has to be a password or a token"))?;
        Ok((settings, secret))
    }

    /// What is said now over what is there.
    pub fn over(self, mailbox: &Mailbox) -> Result<(Value, Option<Secret<String>>), Problem> {
        match mailbox.provider {
            Provider::Imap => {}
            provider @ (Provider::Gmail | Provider::Outlook) => {
                return self.over_consent(provider, mailbox.settings.as_object().cloned().unwrap_or_default());
            }
            Provider::Files | Provider::Scripted => return Ok((self.for_files()?, None)),
        }
        let connection = serde_json::from_value(mailbox.settings["connection"].clone()).map_err(anyhow::Error::from)?;
        self.over_connection(connection, mailbox.settings.as_object().cloned().unwrap_or_default(), false)
    }

    fn over_connection(
        self,
        mut connection: Connection,
        mut settings: Map<String, Value>,
        is_new: bool,
    ) -> Result<(Value, Option<Secret<String>>), Problem> {
        if let Some((field, _)) = self.of_consent().into_iter().find(|(_, is_said)| *is_said) {
            return Err(Problem::invalid(field, "a server that speaks IMAP has no such thing"));
        }
        self.check()?;
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
            let detail = "this would send the password in the open; use starttls or implicit, or say allow_plaintext";
            return Err(Problem::invalid("tls", detail));
        }
        let secret = match (self.password, self.token) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("token", "there is a password already; send one of them"));
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
        // Who may change where a mailbox lives must not get to see what opens it.
        let place = |at: &Connection| (at.host.clone(), at.port, at.tls, at.user.clone(), at.authority.clone());
        if !is_new && secret.is_none() && place(&before) != place(&connection) {
            let detail = "send it, or a token, along with a change of where the mailbox is and who logs in";
            return Err(Problem::invalid("password", detail));
        }
        settings.insert("connection".to_owned(), serde_json::to_value(connection).map_err(anyhow::Error::from)?);
        let (folders, exclude) = (self.folders, self.exclude);
        let (interval_seconds, bytes_per_day) = (self.interval_seconds, self.bytes_per_day);
        let wanted = Self { folders, exclude, interval_seconds, bytes_per_day, ..Self::default() };
        settings.extend(wanted.of_any_mailbox()?);
        Ok((Value::Object(settings), secret))
    }

    fn check(&self) -> Result<(), Problem> {
        let plain = |text: &str| !text.is_empty() && text.len() <= LONGEST_TEXT && !text.chars().any(char::is_control);
        for (field, text) in [("host", &self.host), ("user", &self.user)] {
            if text.as_ref().is_some_and(|text| !plain(text) || (field == "host" && text.contains([' ', '/', '@']))) {
                return Err(Problem::invalid(field, "it is not one that a server can have"));
            }
        }
        for (field, secret) in
            [("password", &self.password), ("token", &self.token), ("refresh_token", &self.refresh_token)]
        {
            let is_bad = |text: &str| text.is_empty() || text.len() > LONGEST_PEM || text.contains(['\0', '\r', '\n']);
            if secret.as_ref().is_some_and(|secret| is_bad(secret.expose())) {
                return Err(Problem::invalid(field, "it is empty, too long, or on several lines"));
            }
        }
        if self.port == Some(0) {
            return Err(Problem::invalid("port", "it is at least 1"));
        }
        if self.ca_pem.as_ref().is_some_and(|pem| pem.len() > LONGEST_PEM || !imap::has_authority(pem)) {
            return Err(Problem::invalid(
                "ca_pem",
                "there is no certificate in it; it begins with -----BEGIN CERTIFICATE-----",
            ));
        }
        for (field, folders) in [("folders", &self.folders), ("exclude", &self.exclude)] {
            if folders
                .as_ref()
                .is_some_and(|folders| folders.len() > MOST_FOLDERS || !folders.iter().all(|name| plain(name)))
            {
                return Err(Problem::invalid(field, "they are at most 1000 names of folders"));
            }
        }
        if self.interval_seconds.is_some_and(|seconds| !(1..=LONGEST_INTERVAL).contains(&seconds)) {
            return Err(Problem::invalid("interval_seconds", format!("it is 1 to {LONGEST_INTERVAL}")));
        }
        if self.bytes_per_day.is_some_and(|bytes| bytes > MOST_BYTES_PER_DAY) {
            return Err(Problem::invalid("bytes_per_day", format!("it is at most {MOST_BYTES_PER_DAY}")));
        }
        Ok(())
    }
}
