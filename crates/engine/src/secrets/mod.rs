//! What opens mailboxes, at rest: each secret is encrypted by a key of its tenant, and that by the master key, which is
//! in no database.

mod master;
mod rotate;
mod seal;
mod source;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::secret::Zeroize;
use domain::{Secret, SecretId, SecretKind, TenantId};
use ring::hmac;
use store::sql::secrets::{MASTER_KEY_CHANGED, MasterState, SealedSecret, WrappedKey};
use store::{Store, StoreError};

pub use master::MasterKey;
pub use rotate::Rotated;
pub use source::KeySource;
pub(crate) use source::write_new;

use seal::{Key, Place};
use source::Ring;

/// Unwrapped keys that are kept in memory. A few hundred bytes each; with more tenants than this at once, some are
/// unwrapped again.
const KEPT_KEYS: usize = 4096;

/// Somebody else may add a tenant's first key, or change the master key, but hardly again and again.
const TRIES: usize = 5;

/// One variant per thing that a caller does differently.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The master key is missing, another's, or open to others: an operator has to do something, and this says what.
    #[error("{0}")]
    Key(String),
    /// It was altered, moved from elsewhere, or stored as another kind. Trying again does not help.
    #[error("{0} cannot be decrypted: it was altered or moved, or it is of another kind; store it anew")]
    Damaged(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Seals and opens. Nothing is read before it is needed, so whoever has no secrets needs no key. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Vault {
    store: Store,
    source: KeySource,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    ring: Ring,
    keys: HashMap<(TenantId, u32), Key>,
}

/// What `doctor` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Neither the database nor the source has a key; the first use makes one.
    None,
    /// There is a key that the database does not know yet; the first use takes it.
    Unused(String),
    Ready(String),
}

impl Vault {
    pub fn new(store: Store, source: KeySource) -> Self {
        Self { store, source, kept: Arc::default() }
    }

    /// Makes sure that the master key of this database is at hand, and makes one when the database has none yet. Gives
    /// its fingerprint.
    pub async fn unlock(&self) -> Result<String, VaultError> {
        Ok(self.current_master().await?.fingerprint().to_owned())
    }

    /// The same without changing anything.
    pub async fn standing(&self) -> Result<Standing, VaultError> {
        match self.current_fingerprint().await? {
            Some(fingerprint) => Ok(Standing::Ready(self.master(&fingerprint)?.fingerprint().to_owned())),
            None => Ok(match self.source.load()?.0.first() {
                Some(key) => Standing::Unused(key.fingerprint().to_owned()),
                None => Standing::None,
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
        let (key_version, key) = self.last_key(tenant).await?;
        let place = Place::Secret { tenant, id, key_version, kind };
        let ciphertext = seal::seal(&key, place, plaintext.expose().as_ref())?;
        Ok(SealedSecret { id, kind, key_version, ciphertext })
    }

    /// `None` when there is no such secret.
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

    /// The same for what was a text.
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

    /// One that was read already.
    pub async fn open_sealed(
        &self,
        tenant: TenantId,
        kind: SecretKind,
        sealed: &SealedSecret,
    ) -> Result<Secret<Vec<u8>>, VaultError> {
        let SealedSecret { id, key_version, .. } = *sealed;
        let key = self.key(tenant, key_version).await?;
        seal::open(&key, Place::Secret { tenant, id, key_version, kind }, &sealed.ciphertext)
            .ok_or_else(|| VaultError::Damaged(format!("the secret {id}")))
    }

    /// A key for another purpose than to encrypt, the same for everybody who has this master key. Each purpose has a label
    /// of its own.
    pub(crate) async fn derive(&self, label: &str) -> Result<hmac::Key, VaultError> {
        Ok(hmac::Key::new(hmac::HMAC_SHA256, self.derived(label).await?.expose()))
    }

    /// Sealed for somebody to carry around and bring back, to any process that has this master key. Each purpose has a
    /// label of its own. When the master key changes, what was sealed before ends with it.
    pub(crate) async fn seal_carried(&self, purpose: &str, plaintext: &[u8]) -> Result<Vec<u8>, VaultError> {
        let key = self.derived(purpose).await?;
        Ok(seal::seal(&key, Place::Carried { purpose }, plaintext)?)
    }

    /// `None`: it is not what was sealed for this purpose.
    pub(crate) async fn open_carried(
        &self,
        purpose: &str,
        sealed: &[u8],
    ) -> Result<Option<Secret<Vec<u8>>>, VaultError> {
        let key = self.derived(purpose).await?;
        Ok(seal::open(&key, Place::Carried { purpose }, sealed))
    }

    async fn derived(&self, label: &str) -> Result<Key, VaultError> {
        let master = self.current_master().await?;
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master.key.expose()), label.as_bytes());
        let bytes: [u8; 32] = derived.as_ref().try_into().map_err(|_| anyhow::anyhow!("a key of another length"))?;
        Ok(Secret::new(bytes))
    }

    /// The tenant's key that encrypts, made now if it has none. Two callers at once get the same one.
    async fn last_key(&self, tenant: TenantId) -> Result<(u32, Key), VaultError> {
        for _ in 0..TRIES {
            if let Some(wrapped) = self.store.tenant(tenant).find_last_key().await? {
                return Ok((wrapped.version, self.unwrap(tenant, &wrapped)?));
            }
            let first = wrap(&self.current_master().await?, tenant, 1, &seal::random_key()?)?;
            match self.store.system().add_tenant_key(tenant, &first).await {
                Ok(()) | Err(StoreError::Precondition(MASTER_KEY_CHANGED)) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(StoreError::Precondition(MASTER_KEY_CHANGED).into())
    }

    async fn key(&self, tenant: TenantId, version: u32) -> Result<Key, VaultError> {
        if let Some(key) = self.kept().keys.get(&(tenant, version)) {
            return Ok(key.clone());
        }
        let wrapped = self.store.tenant(tenant).find_key(version).await?;
        let wrapped = wrapped.ok_or_else(|| damaged_key(tenant, version))?;
        self.unwrap(tenant, &wrapped)
    }

    fn unwrap(&self, tenant: TenantId, wrapped: &WrappedKey) -> Result<Key, VaultError> {
        let WrappedKey { version, master, .. } = wrapped;
        if let Some(key) = self.kept().keys.get(&(tenant, *version)) {
            return Ok(key.clone());
        }
        let place = Place::TenantKey { tenant, version: *version, master };
        let opened = seal::open(&self.master(master)?.key, place, &wrapped.wrapped);
        let bytes = opened.and_then(|bytes| bytes.expose().as_slice().try_into().ok());
        let key = Key::new(bytes.ok_or_else(|| damaged_key(tenant, *version))?);
        let mut kept = self.kept();
        if kept.keys.len() >= KEPT_KEYS {
            kept.keys.clear();
        }
        kept.keys.insert((tenant, *version), key.clone());
        Ok(key)
    }

    async fn current_master(&self) -> Result<MasterKey, VaultError> {
        if self.current_fingerprint().await?.is_none() {
            self.establish().await?;
        }
        match self.current_fingerprint().await? {
            Some(fingerprint) => self.master(&fingerprint),
            None => Err(VaultError::Key("the database does not keep the fingerprint of its master key".to_owned())),
        }
    }

    /// A database that has no key yet takes the one that is there, or one that is made now. Of several processes that
    /// try, one decides.
    async fn establish(&self) -> Result<(), VaultError> {
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
            ring.0.first().ok_or_else(|| VaultError::Key(format!("there is no key in {}", self.source.shown())))?;
        self.store.system().record_first_master_key(key.fingerprint()).await?;
        if let (Some((path, key)), Some(current)) = (made, self.current_fingerprint().await?)
            && current != key.fingerprint()
        {
            // Somebody elsewhere was first, so ours never was a key.
            source::discard(path, &key)?;
        }
        Ok(())
    }

    /// Looks again where keys come from, once, when it is one that we do not know: another process may have changed it.
    fn master(&self, fingerprint: &str) -> Result<MasterKey, VaultError> {
        if let Some(key) = self.kept().ring.find(fingerprint) {
            return Ok(key.clone());
        }
        let ring = self.source.load()?;
        let found = ring.find(fingerprint).cloned();
        let found = found.ok_or_else(|| self.refusal(fingerprint, &ring))?;
        self.kept().ring = ring;
        Ok(found)
    }

    fn refusal(&self, wanted: &str, ring: &Ring) -> VaultError {
        let place = self.source.shown();
        let needs = format!("this database needs the master key with the fingerprint {wanted}");
        VaultError::Key(match ring.0.first() {
            None => format!(
                "{needs}, and there is none at {place}; put that key there, or name its place with secrets.key_file"
            ),
            Some(found) => format!(
                "{needs}, and the one in {place} is {}; put the right key there, or name its place with secrets.key_file",
                found.fingerprint()
            ),
        })
    }

    async fn current_fingerprint(&self) -> Result<Option<String>, VaultError> {
        let known = self.store.system().list_master_fingerprints().await?;
        Ok(known.into_iter().find(|key| key.state == MasterState::Current).map(|key| key.fingerprint))
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrap(master: &MasterKey, tenant: TenantId, version: u32, key: &Key) -> Result<WrappedKey, VaultError> {
    let place = Place::TenantKey { tenant, version, master: master.fingerprint() };
    let wrapped = seal::seal(&master.key, place, key.expose())?;
    Ok(WrappedKey { version, wrapped, master: master.fingerprint().to_owned() })
}

fn damaged_key(tenant: TenantId, version: u32) -> VaultError {
    VaultError::Damaged(format!("key {version} of the tenant {tenant}"))
}
