//! Secrets at rest: each is encrypted with a key of its tenant, which is wrapped by the master key, which is in no
//! database.

mod master;
mod rotate;
mod seal;
mod source;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::secret::Zeroize;
use domain::{Secret, SecretId, SecretKind, TenantId};
use ring::hmac;
use store::sql::secrets::{MasterKeyState, SealedSecret, WrappedKey};
use store::{Precondition, Store, StoreError};

pub use master::MasterKey;
pub use rotate::RotationReport;
pub use source::KeySource;
pub(crate) use source::write_new;

use seal::{AesKey, CiphertextContext};
use source::KeyRing;

/// Unwrapped keys in memory, of a few hundred bytes each; with more tenants than this at once, some are unwrapped again.
const MAX_CACHED_KEYS: usize = 4096;

/// Attempts: another process may add a tenant's first key or change the master key, but hardly again and again.
const MAX_ATTEMPTS: usize = 5;

/// Why a secret cannot be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The master key is missing, the wrong one, or readable by others; says what an operator has to do.
    #[error("{0}")]
    Key(String),
    /// The ciphertext was altered, moved, or stored as another kind. A retry does not help.
    #[error("{0} cannot be decrypted: it was altered or moved, or it is of another kind; store it anew")]
    Damaged(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Seals and opens secrets. Reads keys only when they are needed, so an installation without secrets needs none. Cheap
/// to clone.
#[derive(Debug, Clone)]
pub struct Vault {
    store: Store,
    source: KeySource,
    cache: Arc<Mutex<VaultCache>>,
}

#[derive(Debug, Default)]
struct VaultCache {
    ring: KeyRing,
    keys: HashMap<(TenantId, u32), AesKey>,
}

/// The state of the master key, for `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VaultStatus {
    /// Neither the database nor the source has a key; the first use makes one.
    None,
    /// There is a key that the database does not know yet; the first use takes it.
    Unused(String),
    Ready(String),
}

impl Vault {
    pub fn new(store: Store, source: KeySource) -> Self {
        Self { store, source, cache: Arc::default() }
    }

    /// Makes sure that the master key of this database is at hand, creating one if the database has none yet, and
    /// returns its fingerprint.
    pub async fn unlock(&self) -> Result<String, VaultError> {
        Ok(self.current_master().await?.fingerprint().to_owned())
    }

    /// Returns the state of the master key without changing anything.
    pub async fn status(&self) -> Result<VaultStatus, VaultError> {
        match self.current_fingerprint().await? {
            Some(fingerprint) => Ok(VaultStatus::Ready(self.master(&fingerprint)?.fingerprint().to_owned())),
            None => Ok(match self.source.load()?.0.first() {
                Some(key) => VaultStatus::Unused(key.fingerprint().to_owned()),
                None => VaultStatus::None,
            }),
        }
    }

    /// Encrypts for one tenant, id and kind; `unit.put_secret` stores it together with what it belongs to.
    pub async fn seal(
        &self,
        tenant: TenantId,
        id: SecretId,
        kind: SecretKind,
        plaintext: &Secret<impl AsRef<[u8]> + Zeroize>,
    ) -> Result<SealedSecret, VaultError> {
        let (key_version, key) = self.current_key(tenant).await?;
        let context = CiphertextContext::Secret { tenant, id, key_version, kind };
        let ciphertext = seal::seal(&key, context, plaintext.expose().as_ref())?;
        Ok(SealedSecret { id, kind, key_version, ciphertext })
    }

    /// Opens a secret. Returns `None` if it does not exist.
    pub async fn open(
        &self,
        tenant: TenantId,
        id: SecretId,
        kind: SecretKind,
    ) -> Result<Option<Secret<Vec<u8>>>, VaultError> {
        match self.store.tenant(tenant).find_secret(id).await? {
            Some(sealed) => self.open_sealed(tenant, kind, &sealed).await.map(Some),
            None => Ok(None),
        }
    }

    /// Opens a secret that is text.
    pub async fn open_text(
        &self,
        tenant: TenantId,
        id: SecretId,
        kind: SecretKind,
    ) -> Result<Option<Secret<String>>, VaultError> {
        let Some(bytes) = self.open(tenant, id, kind).await? else { return Ok(None) };
        let text = std::str::from_utf8(bytes.expose());
        let text = text.map_err(|_| VaultError::Damaged(format!("the secret {id}")))?;
        Ok(Some(Secret::new(text.to_owned())))
    }

    /// Opens a secret that was read already.
    pub async fn open_sealed(
        &self,
        tenant: TenantId,
        kind: SecretKind,
        sealed: &SealedSecret,
    ) -> Result<Secret<Vec<u8>>, VaultError> {
        let SealedSecret { id, key_version, .. } = *sealed;
        let key = self.key(tenant, key_version).await?;
        seal::open(&key, CiphertextContext::Secret { tenant, id, key_version, kind }, &sealed.ciphertext)
            .ok_or_else(|| VaultError::Damaged(format!("the secret {id}")))
    }

    /// Derives a signing key from the master key, the same in all processes. Each purpose has a label of its own.
    pub(crate) async fn derive(&self, label: &str) -> Result<hmac::Key, VaultError> {
        Ok(hmac::Key::new(hmac::HMAC_SHA256, self.derived(label).await?.expose()))
    }

    /// Seals a payload that a client carries and returns to any process with this master key. Each purpose has a label
    /// of its own. A change of the master key invalidates it.
    pub(crate) async fn seal_portable(&self, purpose: &str, plaintext: &[u8]) -> Result<Vec<u8>, VaultError> {
        let key = self.derived(purpose).await?;
        Ok(seal::seal(&key, CiphertextContext::Portable { purpose }, plaintext)?)
    }

    /// Opens such a payload. Returns `None` if it was not sealed for this purpose.
    pub(crate) async fn open_portable(
        &self,
        purpose: &str,
        sealed: &[u8],
    ) -> Result<Option<Secret<Vec<u8>>>, VaultError> {
        let key = self.derived(purpose).await?;
        Ok(seal::open(&key, CiphertextContext::Portable { purpose }, sealed))
    }

    async fn derived(&self, label: &str) -> Result<AesKey, VaultError> {
        let master = self.current_master().await?;
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master.key.expose()), label.as_bytes());
        let bytes: [u8; 32] = derived.as_ref().try_into().map_err(|_| anyhow::anyhow!("a key of another length"))?;
        Ok(Secret::new(bytes))
    }

    /// Returns the current key of a tenant, created now if it has none. Two concurrent callers get the same one.
    async fn current_key(&self, tenant: TenantId) -> Result<(u32, AesKey), VaultError> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(wrapped) = self.store.tenant(tenant).find_last_key().await? {
                return Ok((wrapped.version, self.unwrap(tenant, &wrapped)?));
            }
            let first = wrap(&self.current_master().await?, tenant, 1, &seal::random_key()?)?;
            match self.store.system().add_tenant_key(tenant, &first).await {
                Ok(()) | Err(StoreError::Precondition(Precondition::MasterKeyChanged)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(StoreError::Precondition(Precondition::MasterKeyChanged).into())
    }

    async fn key(&self, tenant: TenantId, version: u32) -> Result<AesKey, VaultError> {
        if let Some(key) = self.cache().keys.get(&(tenant, version)) {
            return Ok(key.clone());
        }
        let wrapped = self.store.tenant(tenant).find_key(version).await?;
        let wrapped = wrapped.ok_or_else(|| damaged_key(tenant, version))?;
        self.unwrap(tenant, &wrapped)
    }

    fn unwrap(&self, tenant: TenantId, wrapped: &WrappedKey) -> Result<AesKey, VaultError> {
        let WrappedKey { version, master, .. } = wrapped;
        if let Some(key) = self.cache().keys.get(&(tenant, *version)) {
            return Ok(key.clone());
        }
        let context = CiphertextContext::TenantKey { tenant, version: *version, master };
        let opened = seal::open(&self.master(master)?.key, context, &wrapped.wrapped);
        let bytes = opened.and_then(|bytes| bytes.expose().as_slice().try_into().ok());
        let key = AesKey::new(bytes.ok_or_else(|| damaged_key(tenant, *version))?);
        let mut cache = self.cache();
        if cache.keys.len() >= MAX_CACHED_KEYS {
            cache.keys.clear();
        }
        cache.keys.insert((tenant, *version), key.clone());
        Ok(key)
    }

    async fn current_master(&self) -> Result<MasterKey, VaultError> {
        if self.current_fingerprint().await?.is_none() {
            self.establish_master().await?;
        }
        match self.current_fingerprint().await? {
            Some(fingerprint) => self.master(&fingerprint),
            None => Err(VaultError::Key("the database does not keep the fingerprint of its master key".to_owned())),
        }
    }

    /// Records the first master key of a database: the one of its source, or one that is created now. Of several
    /// processes that try, one decides.
    async fn establish_master(&self) -> Result<(), VaultError> {
        let mut ring = self.source.load()?;
        let mut made = None;
        if let (true, KeySource::File(path)) = (ring.0.is_empty(), &self.source) {
            let key = MasterKey::random()?;
            if source::make(path, &key)? {
                made = Some((path, key));
            }
            ring = self.source.load()?;
        }
        let key =
            ring.0.first().ok_or_else(|| VaultError::Key(format!("there is no key in {}", self.source.describe())))?;
        self.store.system().record_first_master_key(key.fingerprint()).await?;
        if let (Some((path, key)), Some(current)) = (made, self.current_fingerprint().await?)
            && current != key.fingerprint()
        {
            // Another process was first, so ours never was in use.
            source::discard(path, &key)?;
        }
        Ok(())
    }

    /// Returns a master key by its fingerprint. Reloads the source once if it is not known: another process may have
    /// changed it.
    fn master(&self, fingerprint: &str) -> Result<MasterKey, VaultError> {
        if let Some(key) = self.cache().ring.find(fingerprint) {
            return Ok(key.clone());
        }
        let ring = self.source.load()?;
        let found = ring.find(fingerprint).cloned();
        let found = found.ok_or_else(|| self.key_error(fingerprint, &ring))?;
        self.cache().ring = ring;
        Ok(found)
    }

    fn key_error(&self, wanted: &str, ring: &KeyRing) -> VaultError {
        let context = self.source.describe();
        let needs = format!("this database needs the master key with the fingerprint {wanted}");
        VaultError::Key(match ring.0.first() {
            None => format!(
                "{needs}, and there is none at {context}; put that key there, or name its place with secrets.key_file"
            ),
            Some(found) => format!(
                "{needs}, and the one in {context} is {}; put the right key there, or name its place with secrets.key_file",
                found.fingerprint()
            ),
        })
    }

    async fn current_fingerprint(&self) -> Result<Option<String>, VaultError> {
        let known = self.store.system().list_master_fingerprints().await?;
        Ok(known.into_iter().find(|key| key.state == MasterKeyState::Current).map(|key| key.fingerprint))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, VaultCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrap(master: &MasterKey, tenant: TenantId, version: u32, key: &AesKey) -> Result<WrappedKey, VaultError> {
    let context = CiphertextContext::TenantKey { tenant, version, master: master.fingerprint() };
    let wrapped = seal::seal(&master.key, context, key.expose())?;
    Ok(WrappedKey { version, wrapped, master: master.fingerprint().to_owned() })
}

fn damaged_key(tenant: TenantId, version: u32) -> VaultError {
    VaultError::Damaged(format!("key {version} of the tenant {tenant}"))
}
