//! Rotates the master key while Mailroom runs: a new master key, new keys for all tenants, and every secret
//! re-encrypted. Each step reads from the database what is left to do, so an interrupted rotation continues when it is
//! run again.

use std::path::Path;

use domain::{SecretId, TenantId};
use serde::Serialize;
use store::sql::secrets::{MasterKeyState, SealedSecret};
use store::{Precondition, StoreError};

use super::master::MasterKey;
use super::seal::{self, CiphertextContext};
use super::source::{self, KeySource};
use super::{MAX_ATTEMPTS, Vault, VaultError, wrap};

/// Secrets per unit: a few milliseconds of work.
const BATCH_SECRETS: u64 = 100;

/// The result of a rotation; a second run after an interruption counts only what was left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RotationReport {
    /// The fingerprint of the current key.
    pub fingerprint: String,
    /// The fingerprints of keys that are no longer needed, except for earlier backups.
    pub retired: Vec<String>,
    /// Tenants that got a new key.
    pub tenants: u64,
    /// Secrets that were encrypted anew.
    pub secrets: u64,
    /// Keys and secrets that cannot be decrypted, a sentence each. They stay as they are.
    pub damaged: Vec<String>,
}

impl Vault {
    /// Rotates to the key in `new_key_file`; without it, to `FILE.new` if that exists, else to a new one. Every running
    /// process needs access to it.
    pub async fn rotate(&self, new_key_file: Option<&Path>) -> Result<RotationReport, VaultError> {
        self.unlock().await?;
        let mut rotated = RotationReport::default();
        if self.in_state(MasterKeyState::Retiring).await?.is_empty() {
            self.change_master_key(new_key_file).await?;
        }
        rotated.fingerprint = self.unlock().await?;
        for retiring in self.in_state(MasterKeyState::Retiring).await? {
            for tenant in self.store.system().list_tenants_wrapped_by(&retiring).await? {
                match self.rotate_tenant(tenant).await {
                    Ok(()) => rotated.tenants += 1,
                    Err(VaultError::Damaged(what)) => rotated.damaged.push(what),
                    Err(e) => return Err(e),
                }
            }
        }
        for tenant in self.store.system().list_tenants_with_keys().await? {
            self.reseal_all(tenant, &mut rotated).await?;
        }
        for retiring in self.in_state(MasterKeyState::Retiring).await? {
            if self.store.system().forget_master_key(&retiring).await? {
                rotated.retired.push(retiring);
            }
        }
        if let KeySource::File(path) = &self.source {
            let known = self.store.system().list_master_fingerprints().await?;
            let needed: Vec<String> = known.into_iter().map(|key| key.fingerprint).collect();
            source::remove_unneeded(path, &needed)?;
        }
        Ok(rotated)
    }

    /// Changes the master key. The new key is where every running process finds it before the database refers to it.
    async fn change_master_key(&self, new_key_file: Option<&Path>) -> Result<(), VaultError> {
        let current = self.unlock().await?;
        let next = self.next_key(&current, new_key_file).await?;
        if next.fingerprint() == current {
            return Err(VaultError::Key(format!(
                "the new master key is the one that is in force ({current}); give another one"
            )));
        }
        self.store.system().announce_master_key(next.fingerprint()).await?;
        if let KeySource::File(path) = &self.source {
            source::install_next(path, &current, next.fingerprint())?;
        }
        match self.store.system().switch_master_key(&current, next.fingerprint()).await {
            Err(StoreError::Precondition(Precondition::MasterKeyChanged)) => Err(VaultError::Key(
                "another process is changing the master key; run the command again when that is done".to_owned(),
            )),
            outcome => Ok(outcome?),
        }
    }

    async fn next_key(&self, current: &str, new_key_file: Option<&Path>) -> Result<MasterKey, VaultError> {
        let given = match new_key_file {
            None => None,
            Some(path) => Some(
                source::read(path)?
                    .ok_or_else(|| VaultError::Key(format!("there is no key file {}", path.display())))?,
            ),
        };
        let ring = self.source.load()?;
        let KeySource::File(path) = &self.source else {
            if given.is_some() {
                return Err(VaultError::Key(
                    "the master key comes from secrets.key; give the new one there too, after a comma".to_owned(),
                ));
            }
            // A process cannot reload its environment.
            return ring.0.into_iter().find(|key| key.fingerprint() != current).ok_or_else(|| {
                VaultError::Key(
                    "the master key comes from secrets.key, so set secrets.key to both keys, separated by a comma, for \
                     every process, then run the command again"
                        .to_owned(),
                )
            });
        };
        // A key that was announced and installed is used, so that an interruption does not create a third one.
        for next in self.in_state(MasterKeyState::Next).await? {
            if let (None, Some(key)) = (&given, ring.find(&next)) {
                return Ok(key.clone());
            }
        }
        let new = source::beside(path, "new");
        match (given, source::read(&new)?) {
            (None, Some(there)) => Ok(there),
            (Some(given), Some(there)) if given.fingerprint() != there.fingerprint() => Err(VaultError::Key(format!(
                "{} holds another key ({}) than the new key ({}); remove one of them",
                new.display(),
                there.fingerprint(),
                given.fingerprint()
            ))),
            (Some(_), Some(there)) => Ok(there),
            (given, None) => {
                let key = given.map_or_else(MasterKey::random, Ok)?;
                let is_in_place = source::read(path)?.is_some_and(|there| there.fingerprint() == key.fingerprint());
                if !is_in_place {
                    source::make(&new, &key)?;
                }
                Ok(key)
            }
        }
    }

    /// Rewraps the keys of a tenant with the current master key, and adds a new one that encrypts from now on.
    async fn rotate_tenant(&self, tenant: TenantId) -> Result<(), VaultError> {
        for _ in 0..MAX_ATTEMPTS {
            let master = self.current_master().await?;
            let keys = self.store.tenant(tenant).list_keys().await?;
            let Some(last) = keys.last().map(|key| key.version) else { return Ok(()) };
            let mut rewrapped = Vec::new();
            for key in keys.into_iter().filter(|key| key.master != master.fingerprint()) {
                let wrapped = wrap(&master, tenant, key.version, &self.unwrap(tenant, &key)?)?;
                rewrapped.push((key, wrapped));
            }
            if rewrapped.is_empty() {
                return Ok(());
            }
            let new = wrap(&master, tenant, last + 1, &seal::random_key()?)?;
            if self.store.system().rotate_tenant_key(tenant, &rewrapped, &new).await? {
                return Ok(());
            }
        }
        Err(StoreError::Precondition(Precondition::TenantKeyChanged).into())
    }

    /// Re-encrypts the secrets under older keys until none is left. A secret that is stored meanwhile wins.
    async fn reseal_all(&self, tenant: TenantId, rotated: &mut RotationReport) -> Result<(), VaultError> {
        let store = self.store.tenant(tenant);
        let mut after: Option<SecretId> = None;
        loop {
            let page = store.list_secrets_under_old_keys(after, BATCH_SECRETS).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.id);
            let mut pairs = Vec::new();
            for old in page {
                match self.reseal(tenant, &old).await {
                    Ok(new) => pairs.push((old, new)),
                    Err(VaultError::Damaged(what)) => rotated.damaged.push(what),
                    Err(e) => return Err(e),
                }
            }
            if !pairs.is_empty() {
                rotated.secrets += store.replace_sealed(&pairs).await?;
            }
        }
    }

    async fn reseal(&self, tenant: TenantId, old: &SealedSecret) -> Result<SealedSecret, VaultError> {
        let plaintext = self.open_sealed(tenant, old.kind, old).await?;
        let (key_version, key) = self.current_key(tenant).await?;
        let context = CiphertextContext::Secret { tenant, id: old.id, key_version, kind: old.kind };
        let ciphertext = seal::seal(&key, context, plaintext.expose())?;
        Ok(SealedSecret { key_version, ciphertext, ..old.clone() })
    }

    async fn in_state(&self, state: MasterKeyState) -> Result<Vec<String>, VaultError> {
        let known = self.store.system().list_master_fingerprints().await?;
        Ok(known.into_iter().filter(|key| key.state == state).map(|key| key.fingerprint).collect())
    }
}
