//! What a connector is given to make its calls with: tokens and quotas.

use std::sync::Arc;

use domain::connector::{Access, Account, Answer};
use domain::{Connector, ConnectorError, Secret};
use store::sql::mailboxes::Mailbox;
use tokio::sync::Mutex;

use crate::calls::Calls;
use crate::tokens::{Asker, Tokens};

/// Of a mailbox that is connected.
#[derive(Debug)]
pub struct Granted {
    pub tokens: Tokens,
    pub calls: Calls,
    pub mailbox: Arc<Mailbox>,
    pub asker: Asker,
}

impl Access for Granted {
    fn spend(&self, units: u32) -> Answer<'_, ()> {
        Box::pin(self.calls.spend_units(&self.mailbox, units))
    }

    fn token(&self) -> Answer<'_, Secret<String>> {
        Box::pin(self.tokens.get(&self.asker, None))
    }

    fn renew<'a>(&'a self, refused: &'a Secret<String>) -> Answer<'a, Secret<String>> {
        Box::pin(self.tokens.get(&self.asker, Some(refused)))
    }
}

/// Of one that is tried out before it is connected: nothing of it is stored.
#[derive(Debug)]
pub struct Trial {
    connector: Arc<dyn Connector>,
    account: Account,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    token: Option<Secret<String>>,
    secret: Option<Secret<String>>,
}

impl Trial {
    pub fn new(connector: Arc<dyn Connector>, account: Account) -> Self {
        Self { connector, account, found: Mutex::default() }
    }

    /// What is to be kept in the place of the secret that was tried, if the provider has said so.
    pub async fn secret(&self) -> Option<Secret<String>> {
        self.found.lock().await.secret.clone()
    }

    async fn ask(&self, refused: Option<&Secret<String>>) -> Result<Secret<String>, ConnectorError> {
        let mut found = self.found.lock().await;
        if let Some(token) = &found.token
            && refused.is_none_or(|refused| refused.expose() != token.expose())
        {
            return Ok(token.clone());
        }
        let secret = found.secret.clone().or_else(|| self.account.secret.clone());
        let account = Account { secret, ..self.account.clone() };
        let no_tokens = || ConnectorError::Unauthorized("its provider has no tokens".to_owned());
        let grant = self.connector.grant(&account).ok_or_else(no_tokens)?.await?;
        found.token = Some(grant.token.clone());
        if grant.secret.is_some() {
            found.secret = grant.secret;
        }
        Ok(grant.token)
    }
}

impl Access for Trial {
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
