//! A client for one directory: its connector, account and token.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{ApiAccess, ConnectorAccount, ConnectorFuture, Cursors, NoApiAccess};
use domain::{
    Connector, ConnectorError, DirectoryLocation, DirectoryPeoplePage, DirectoryRules, GroupMembers, MailboxId,
    Provider, Secret, Sha256, TenantId,
};
use serde_json::json;
use store::sql::directories::Directory;
use tokio::sync::Mutex;

use super::{DiscoveryError, rules};
use crate::sync::Syncer;
use outbound::{Gateway, Service, Target, TargetAccount};

/// Rate limits up to this are waited for within the job, and so often per page. A job without progress for longer is
/// ended.
const MAX_INLINE_WAIT: Duration = Duration::from_secs(5);
const MAX_INLINE_WAITS: usize = 5;

#[derive(Debug)]
pub struct DirectoryClient {
    pub location: DirectoryLocation,
    pub rules: DirectoryRules,
    connector: Arc<dyn Connector>,
    gateway: Gateway,
    account: ConnectorAccount,
    /// The target of its calls, with a mailbox id of its own.
    target: Target,
}

/// The access of a directory. Its token lives as long as the client and is stored nowhere.
#[derive(Debug)]
struct DirectoryAccess {
    connector: Arc<dyn Connector>,
    account: ConnectorAccount,
    token: Mutex<Option<Secret<String>>>,
}

impl DirectoryClient {
    pub fn open(syncer: &Syncer, tenant: TenantId, directory: &Directory) -> Result<Self, DiscoveryError> {
        let provider = directory.provider;
        let connector = syncer.connectors.get(&provider).cloned().ok_or_else(|| {
            ConnectorError::AppRejected(format!("{} is not available in this Mailroom", provider.as_str()))
        })?;
        let location: DirectoryLocation =
            serde_json::from_value(directory.settings.clone()).map_err(anyhow::Error::from)?;
        let rules = rules(directory)?;
        let settings = json!({
            "app_only": true, "directory": &location.directory, "groups": !rules.groups().is_empty(),
        });
        let id = MailboxId::of_directory(tenant, provider.as_str());
        let address = location.administrator.clone().unwrap_or_default();
        let mut account = ConnectorAccount {
            tenant,
            mailbox: id,
            address: address.clone(),
            settings: settings.to_string(),
            secret: None,
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoApiAccess),
        };
        let looking =
            DirectoryAccess { connector: connector.clone(), account: account.clone(), token: Mutex::default() };
        account.access = Arc::new(looking);
        let target = directory_target(id, tenant, provider);
        Ok(Self { location, rules, connector, gateway: syncer.gateway.clone(), account, target })
    }

    pub async fn page(&self, cursors: &Cursors) -> Result<DirectoryPeoplePage, ConnectorError> {
        self.call_with_waits(|| self.connector.list_users(&self.account, cursors)).await
    }

    /// Makes a call, waiting for short rate limits: a job that starts over would read every group once more.
    async fn call_with_waits<'a, T>(
        &self,
        call: impl Fn() -> Option<ConnectorFuture<'a, T>>,
    ) -> Result<T, ConnectorError> {
        for _ in 0..MAX_INLINE_WAITS {
            let future = call().ok_or_else(no_directory)?;
            match self.gateway.make_directory_call(&self.target, future).await {
                Err(ConnectorError::RateLimited(wait) | ConnectorError::Throttled { retry_after: Some(wait) })
                    if wait <= MAX_INLINE_WAIT =>
                {
                    tokio::time::sleep(wait).await;
                }
                outcome => return outcome,
            }
        }
        self.gateway.make_directory_call(&self.target, call().ok_or_else(no_directory)?).await
    }

    /// Reads the members of the groups that the rules name.
    pub async fn groups(&self, progress: &(dyn Fn() + Send + Sync)) -> Result<GroupMembers, DiscoveryError> {
        let mut groups = GroupMembers::new();
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
            let page = self.call_with_waits(|| self.connector.list_members(&self.account, group, &cursors)).await?;
            progress();
            members.extend(page.members);
            if page.is_last {
                return Ok(members);
            }
            cursors = page.cursors;
        }
    }
}

impl DirectoryAccess {
    async fn get_token(&self, refused: Option<&Secret<String>>) -> Result<Secret<String>, ConnectorError> {
        let mut token = self.token.lock().await;
        if let Some(token) = &*token
            && refused.is_none_or(|refused| refused.expose() != token.expose())
        {
            return Ok(token.clone());
        }
        let grant = self.connector.obtain_directory_token(&self.account).ok_or_else(no_directory)?.await?;
        *token = Some(grant.token.clone());
        Ok(grant.token)
    }
}

/// Directories have no quota units that we know of.
impl ApiAccess for DirectoryAccess {
    fn token<'a>(&'a self, refused: Option<&'a Secret<String>>) -> ConnectorFuture<'a, Secret<String>> {
        Box::pin(self.get_token(refused))
    }
}

fn no_directory() -> ConnectorError {
    ConnectorError::Protocol("this provider has no directory".to_owned())
}

fn directory_target(mailbox: MailboxId, tenant: TenantId, provider: Provider) -> Target {
    let account = TargetAccount {
        mailbox,
        credential: None,
        // Directories have no quota units that are counted by account.
        name: Sha256::of(provider.as_str().as_bytes()),
        bytes_per_day: None,
    };
    Target { service: Service::Provider(provider), endpoint: None, tenant, account: Some(account) }
}
