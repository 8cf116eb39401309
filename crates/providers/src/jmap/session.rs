//! Sessions: what a server says of itself and of the login, and the cache of it (RFC 8620, section 2).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, MailboxId, Secret};
use outbound::http::header::{HeaderMap, LOCATION};
use outbound::http::{StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error_mapping::error_of_status;
use super::settings::JmapConnection;
use super::url_template::expand;
use crate::http::{HttpClient, MAX_RESPONSE_BYTES, protocol, unavailable};
use crate::provider_text::valid_id;

pub const CORE: &str = "urn:ietf:params:jmap:core";
pub const MAIL: &str = "urn:ietf:params:jmap:mail";

/// A session is usually one redirect away from the place where every server has it.
const MAX_REDIRECTS: usize = 4;

/// Sessions that are kept, of about 1 kB each.
const MAX_SESSIONS: usize = 20_000;

/// Objects in a call and requests at once, where a server does not say: the least that the RFC suggests.
const USUAL_MAX_OBJECTS: usize = 500;
const USUAL_MAX_REQUESTS: usize = 4;

/// What we need of a session.
#[derive(Debug)]
pub struct JmapSession {
    /// Changes when anything else here does.
    pub state: String,
    /// The account that is synced.
    pub account: String,
    pub api_url: Url,
    base: Url,
    download_url: String,
    event_source_url: Option<String>,
    /// How many objects a call may read.
    pub max_objects: usize,
    /// How many requests may be made at once.
    pub max_requests: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionResource {
    capabilities: SessionCapabilities,
    accounts: HashMap<String, SessionAccount>,
    #[serde(default)]
    primary_accounts: HashMap<String, String>,
    api_url: String,
    download_url: String,
    #[serde(default)]
    event_source_url: Option<String>,
    state: String,
}

#[derive(Debug, Deserialize)]
struct SessionCapabilities {
    #[serde(rename = "urn:ietf:params:jmap:core")]
    core: CoreCapability,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CoreCapability {
    max_objects_in_get: Option<usize>,
    max_concurrent_requests: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionAccount {
    #[serde(default)]
    name: String,
    /// Cyrus has none before the account's first folder is made.
    account_capabilities: Option<HashMap<String, IgnoredAny>>,
}

impl SessionAccount {
    fn has_mail(&self) -> bool {
        self.account_capabilities.as_ref().is_some_and(|capabilities| capabilities.contains_key(MAIL))
    }
}

impl SessionResource {
    /// Returns the id of the account to sync: the one of this id or name, or the login's own.
    fn mail_account(&self, name: Option<&str>) -> Result<String, ConnectorError> {
        let mut with_mail = self.accounts.iter().filter(|(_, account)| account.has_mail());
        let id = match (name, self.primary_accounts.get(MAIL)) {
            (Some(name), _) => {
                let mut named =
                    with_mail.filter(|(id, account)| *id == name || account.name.eq_ignore_ascii_case(name));
                named.next().map(|(id, _)| id)
            }
            (None, Some(primary)) => Some(primary),
            (None, None) => with_mail.next().map(|(id, _)| id),
        };
        // What the login may open has changed, or it is one without mail.
        let id =
            id.ok_or_else(|| ConnectorError::Unauthorized("the login does not open the mail account".to_owned()))?;
        valid_id(id.clone())
    }
}

impl JmapSession {
    /// Asks the server for the session of a login.
    pub async fn discover(
        http: &HttpClient,
        connection: &JmapConnection,
        secret: &Secret<String>,
    ) -> Result<Self, ConnectorError> {
        let mut url = connection.session_url()?;
        for _ in 0..=MAX_REDIRECTS {
            let mut response = http.response(connection.authorize(http.client.get(url.clone()), secret)).await?;
            match response.status {
                StatusCode::OK => {
                    let body = response.body.read_whole(MAX_RESPONSE_BYTES).await?;
                    return Self::parse(&body, url, connection);
                }
                status if status.is_redirection() => url = redirect_target(&url, &response.headers, connection)?,
                status => return Err(error_of_status(status, &response.headers)),
            }
        }
        Err(protocol("the server redirects too often"))
    }

    fn parse(body: &[u8], base: Url, connection: &JmapConnection) -> Result<Self, ConnectorError> {
        let resource: SessionResource = serde_json::from_slice(body).map_err(|e| {
            if e.is_eof() { unavailable("the response ends too early") } else { protocol("the session is not valid") }
        })?;
        let account = resource.mail_account(connection.account_name.as_deref())?;
        let api_url = resolve(&base, &resource.api_url)?;
        let core = &resource.capabilities.core;
        Ok(Self {
            account,
            api_url,
            max_objects: core.max_objects_in_get.unwrap_or(USUAL_MAX_OBJECTS).max(1),
            max_requests: core.max_concurrent_requests.unwrap_or(USUAL_MAX_REQUESTS).max(1),
            state: resource.state,
            base,
            download_url: resource.download_url,
            event_source_url: resource.event_source_url.filter(|url| !url.is_empty()),
        })
    }

    /// Returns the URL of the bytes of a message.
    pub fn download_url(&self, blob: &str) -> Result<Url, ConnectorError> {
        let values =
            [("accountId", &*self.account), ("blobId", blob), ("name", "message.eml"), ("type", "message/rfc822")];
        resolve(&self.base, &expand(&self.download_url, &values))
    }

    /// Returns the URL of the events of these types, if the server has any.
    pub fn event_source_url(&self, types: &str, ping_seconds: u64) -> Result<Option<Url>, ConnectorError> {
        let Some(template) = &self.event_source_url else { return Ok(None) };
        let values = [("types", types), ("closeafter", "no"), ("ping", &*ping_seconds.to_string())];
        resolve(&self.base, &expand(template, &values)).map(Some)
    }
}

/// Follows a redirect, to another host only if that is allowed: the login is sent there.
fn redirect_target(from: &Url, headers: &HeaderMap, connection: &JmapConnection) -> Result<Url, ConnectorError> {
    let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let to = resolve(from, location.ok_or_else(|| protocol("the server redirects to nowhere"))?)?;
    let is_same = (to.host_str(), to.port_or_known_default()) == (from.host_str(), from.port_or_known_default());
    if is_same || connection.follows_redirects { Ok(to) } else { Err(protocol("the server redirects to another host")) }
}

/// Resolves a URL that the server names; some name a path only. Of what was encrypted, everything stays so.
fn resolve(base: &Url, url: &str) -> Result<Url, ConnectorError> {
    let resolved = base.join(url).map_err(|_| protocol("a URL of the session is not valid"))?;
    match (base.scheme(), resolved.scheme()) {
        (_, "https") | ("http", "http") => Ok(resolved),
        _ => Err(protocol("a URL of the session is not encrypted")),
    }
}

/// Keeps sessions until one of their calls fails or says that they have changed.
#[derive(Debug, Default)]
pub struct SessionCache {
    /// Each with a hash of the login that it is for.
    sessions: Mutex<HashMap<MailboxId, (u64, Arc<JmapSession>)>>,
}

impl SessionCache {
    pub async fn get(
        &self,
        http: &HttpClient,
        account: &ConnectorAccount,
        connection: &JmapConnection,
        secret: &Secret<String>,
    ) -> Result<Arc<JmapSession>, ConnectorError> {
        let login = hash_login(account, secret);
        if let Some((of, session)) = self.lock().get(&account.mailbox)
            && *of == login
        {
            return Ok(session.clone());
        }
        let session = Arc::new(JmapSession::discover(http, connection, secret).await?);
        let mut sessions = self.lock();
        if sessions.len() >= MAX_SESSIONS {
            sessions.clear();
        }
        sessions.insert(account.mailbox, (login, session.clone()));
        Ok(session)
    }

    pub fn forget(&self, mailbox: MailboxId) {
        self.lock().remove(&mailbox);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MailboxId, (u64, Arc<JmapSession>)>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash_login(account: &ConnectorAccount, secret: &Secret<String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&account.settings, secret.expose()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn session_with(change: impl FnOnce(&mut Value), account: Option<&str>) -> Result<JmapSession, ConnectorError> {
        let mut session = json!({
            "capabilities": {CORE: {"maxObjectsInGet": 50}, MAIL: {}},
            "accounts": {
                "u1": {"name": "ann@acme.test", "accountCapabilities": {MAIL: {}}},
                "u2": {"name": "Sales", "accountCapabilities": {MAIL: {}}},
                "u3": {"name": "Contacts", "accountCapabilities": {}},
            },
            "primaryAccounts": {MAIL: "u1"},
            "apiUrl": "/jmap/",
            "downloadUrl": "https://files.acme.test/{accountId}/{blobId}/{name}?type={type}",
            "state": "1",
        });
        change(&mut session);
        let mut connection = JmapConnection::new("https://jmap.acme.test", "ann").unwrap();
        connection.account_name = account.map(str::to_owned);
        let base = Url::parse("https://jmap.acme.test/.well-known/jmap").unwrap();
        JmapSession::parse(session.to_string().as_bytes(), base, &connection)
    }

    #[test]
    fn urls_of_a_session_are_resolved() {
        let session = session_with(|_| (), None).unwrap();

        assert_eq!(session.api_url.as_str(), "https://jmap.acme.test/jmap/");
        let download = session.download_url("G1/2").unwrap();
        assert_eq!(download.as_str(), "https://files.acme.test/u1/G1%2F2/message.eml?type=message%2Frfc822");
        assert_eq!((session.max_objects, session.max_requests), (50, USUAL_MAX_REQUESTS));
        assert_eq!(session.event_source_url("Email", 30), Ok(None));
        let insecure = session_with(|session| session["apiUrl"] = json!("http://jmap.acme.test/"), None);
        assert!(matches!(insecure.unwrap_err(), ConnectorError::Protocol(_)));
    }

    #[test]
    fn account_is_the_named_or_the_primary_one() {
        let account = |name| session_with(|_| (), name).map(|session| session.account);

        assert_eq!(account(None).as_deref(), Ok("u1"));
        let fresh = session_with(|session| session["accounts"]["u1"]["accountCapabilities"] = Value::Null, None);
        assert_eq!(fresh.unwrap().account, "u1");
        assert_eq!(account(Some("sales")).as_deref(), Ok("u2"));
        assert_eq!(account(Some("u2")).as_deref(), Ok("u2"));
        for name in ["Contacts", "u4"] {
            assert!(matches!(account(Some(name)), Err(ConnectorError::Unauthorized(_))), "{name}");
        }
    }

    #[test]
    fn redirect_to_another_host_must_be_allowed() {
        let mut connection = JmapConnection::new("https://acme.test", "ann").unwrap();
        let from = Url::parse("https://acme.test/.well-known/jmap").unwrap();
        let to = |location: &str| HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);

        let same = redirect_target(&from, &to("/jmap/session"), &connection).unwrap();
        assert_eq!(same.as_str(), "https://acme.test/jmap/session");
        assert!(redirect_target(&from, &to("https://other.test/jmap"), &connection).is_err());
        assert!(redirect_target(&from, &to("https://acme.test:8443/jmap"), &connection).is_err());
        connection.follows_redirects = true;
        assert!(redirect_target(&from, &to("https://other.test/jmap"), &connection).is_ok());
        assert!(redirect_target(&from, &to("http://acme.test/jmap"), &connection).is_err());
    }
}
