//! The access that a connector is given for its calls: tokens and quotas.

use std::sync::Arc;

use domain::connector::{ApiAccess, ConnectorAccount, ConnectorFuture};
use domain::{Connector, ConnectorError, Secret};
use tokio::sync::Mutex;

use crate::credentials::tokens::{TokenRequest, Tokens};
use outbound::{Gateway, Target};

/// The access of a connected mailbox.
#[derive(Debug)]
pub struct MailboxAccess {
    pub tokens: Tokens,
    pub gateway: Gateway,
    pub target: Target,
    pub token_request: TokenRequest,
}

impl ApiAccess for MailboxAccess {
    fn acquire_quota(&self, units: u32) -> ConnectorFuture<'_, ()> {
        Box::pin(self.gateway.spend_units(&self.target, units))
    }

    fn token<'a>(&'a self, refused: Option<&'a Secret<String>>) -> ConnectorFuture<'a, Secret<String>> {
        Box::pin(self.tokens.get(&self.token_request, refused))
    }
}

/// The access of a mailbox that is tried out before it is connected: nothing of it is stored.
#[derive(Debug)]
pub struct TrialAccess {
    connector: Arc<dyn Connector>,
    account: ConnectorAccount,
    credentials: Mutex<TrialCredentials>,
}

#[derive(Debug, Default)]
struct TrialCredentials {
    token: Option<Secret<String>>,
    secret: Option<Secret<String>>,
}

impl TrialAccess {
    pub fn new(connector: Arc<dyn Connector>, account: ConnectorAccount) -> Self {
        Self { connector, account, credentials: Mutex::default() }
    }

    /// Returns the secret that replaces the one that was tried, if the provider issued one.
    pub async fn secret(&self) -> Option<Secret<String>> {
        self.credentials.lock().await.secret.clone()
    }

    async fn get_token(&self, refused: Option<&Secret<String>>) -> Result<Secret<String>, ConnectorError> {
        let mut credentials = self.credentials.lock().await;
        if let Some(token) = &credentials.token
            && refused.is_none_or(|refused| refused.expose() != token.expose())
        {
            return Ok(token.clone());
        }
        let secret = credentials.secret.clone().or_else(|| self.account.secret.clone());
        let account = ConnectorAccount { secret, ..self.account.clone() };
        let grant = self
            .connector
            .obtain_token(&account)
            .ok_or_else(|| ConnectorError::Unauthorized("the provider does not issue tokens".to_owned()))?
            .await?;
        credentials.token = Some(grant.token.clone());
        if grant.secret.is_some() {
            credentials.secret = grant.secret;
        }
        Ok(grant.token)
    }
}

impl ApiAccess for TrialAccess {
    fn token<'a>(&'a self, refused: Option<&'a Secret<String>>) -> ConnectorFuture<'a, Secret<String>> {
        Box::pin(self.get_token(refused))
    }
}
