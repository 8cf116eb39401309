//! A directory as we look at it: who calls it, for whom, and with which token.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{Access, Account, Answer, Cursors, NoAccess};
use domain::{
    Connector, ConnectorError, Groups, MailboxId, MailboxState, PeoplePage, Provider, Rules, Secret, TenantId,
};
use serde_json::json;
use store::sql::directories::Directory;
use store::sql::mailboxes::Mailbox;
use tokio::sync::Mutex;

use super::{DiscoveryError, Place, rules};
use crate::calls::Calls;
use crate::sync::Syncer;

/// A wait that is no longer is waited for, and so often for one page. A job that is longer without a sign is ended.
const SHORT: Duration = Duration::from_secs(5);
const WAITS: usize = 5;

#[derive(Debug)]
pub struct View {
    pub place: Place,
    pub rules: Rules,
    connector: Arc<dyn Connector>,
    calls: Calls,
    account: Account,
    /// Under which its calls are counted. No mailbox is like that.
    counted_as: Mailbox,
}

/// Its token lives as long as a look at it: nobody else needs it, so it is stored nowhere.
#[derive(Debug)]
struct Looking {
    connector: Arc<dyn Connector>,
    account: Account,
    token: Mutex<Option<Secret<String>>>,
}

impl View {
    pub fn open(syncer: &Syncer, tenant: TenantId, directory: &Directory) -> Result<Self, DiscoveryError> {
        let provider = directory.provider;
        let missing = || ConnectorError::Operator(format!("{} is not to be had here", provider.as_str()));
        let connector = syncer.connectors.get(&provider).cloned().ok_or_else(missing)?;
        let place: Place = serde_json::from_value(directory.settings.clone()).map_err(anyhow::Error::from)?;
        let rules = rules(directory)?;
        let settings = json!({
            "app_only": true, "directory": &place.directory, "groups": !rules.groups().is_empty(),
        });
        let id = MailboxId::of_directory(tenant, provider.as_str());
        let address = place.administrator.clone().unwrap_or_default();
        let mut account = Account {
            tenant,
            mailbox: id,
            address: address.clone(),
            settings: settings.to_string(),
            secret: None,
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoAccess),
        };
        let looking = Looking { connector: connector.clone(), account: account.clone(), token: Mutex::default() };
        account.access = Arc::new(looking);
        let counted_as = counted_as(id, tenant, provider, directory);
        Ok(Self { place, rules, connector, calls: syncer.calls.clone(), account, counted_as })
    }

    pub async fn page(&self, cursors: &Cursors) -> Result<PeoplePage, ConnectorError> {
        self.patiently(|| self.connector.users(&self.account, cursors)).await
    }

    /// What takes a moment is waited for: who begins anew asks for every group once more.
    async fn patiently<'a, T>(&self, ask: impl Fn() -> Option<Answer<'a, T>>) -> Result<T, ConnectorError> {
        for _ in 0..WAITS {
            let call = ask().ok_or_else(no_directory)?;
            match self.calls.ask_directory(&self.counted_as, call).await {
                Err(ConnectorError::NotYet(wait) | ConnectorError::Throttled { retry_after: Some(wait) })
                    if wait <= SHORT =>
                {
                    tokio::time::sleep(wait).await;
                }
                outcome => return outcome,
            }
        }
        self.calls.ask_directory(&self.counted_as, ask().ok_or_else(no_directory)?).await
    }

    /// Who is in the groups that the rules name.
    pub async fn groups(&self, progress: &(dyn Fn() + Send + Sync)) -> Result<Groups, DiscoveryError> {
        let mut groups = Groups::new();
        for group in self.rules.groups() {
            let members = match self.members(&group, progress).await {
                Err(ConnectorError::Gone) => return Err(DiscoveryError::NoGroup(group)),
                members => members?,
            };
            groups.insert(group, members);
        }
        Ok(groups)
    }

    async fn members(
        &self,
        group: &str,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<HashSet<String>, ConnectorError> {
        let (mut members, mut cursors) = (HashSet::new(), Cursors::new());
        loop {
            let page = self.patiently(|| self.connector.members(&self.account, group, &cursors)).await?;
            progress();
            members.extend(page.members);
            if page.is_last {
                return Ok(members);
            }
            cursors = page.cursors;
        }
    }
}

impl Looking {
    async fn ask(&self, refused: Option<&Secret<String>>) -> Result<Secret<String>, ConnectorError> {
        let mut token = self.token.lock().await;
        if let Some(token) = &*token
            && refused.is_none_or(|refused| refused.expose() != token.expose())
        {
            return Ok(token.clone());
        }
        let grant = self.connector.directory_grant(&self.account).ok_or_else(no_directory)?.await?;
        *token = Some(grant.token.clone());
        Ok(grant.token)
    }
}

impl Access for Looking {
    /// A directory has no units of its own that we know of.
    fn spend(&self, _units: u32) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn token(&self) -> Answer<'_, Secret<String>> {
        Box::pin(self.ask(None))
    }

    fn renew<'a>(&'a self, refused: &'a Secret<String>) -> Answer<'a, Secret<String>> {
        Box::pin(self.ask(Some(refused)))
    }
}

fn no_directory() -> ConnectorError {
    ConnectorError::Protocol("this provider has no directory".to_owned())
}

fn counted_as(id: MailboxId, tenant_id: TenantId, provider: Provider, directory: &Directory) -> Mailbox {
    Mailbox {
        id,
        tenant_id,
        provider,
        address: String::new(),
        state: MailboxState::Active,
        state_reason: None,
        state_since: directory.created_at,
        settings: json!({}),
        secret_ref: None,
        is_active: true,
        created_at: directory.created_at,
        updated_at: directory.updated_at,
        version: directory.version,
    }
}
