//! From settings to a working engine.

use std::path::Path;
use std::sync::Arc;

use content::spool::Spool;
use domain::SystemClock;
use engine::{Cpu, Engine};
use store::blobs::{Blobs, RemoteSettings};
use store::sql::mailboxes::Mailbox;
use store::sql::tenants::Tenant;
use store::{Location, Store, TenantStore};

use crate::config::{BlobsUrl, Config, DatabaseUrl};
use crate::failure::Failure;

pub fn location(config: &Config) -> Location {
    match &config.database.url {
        DatabaseUrl::Sqlite(path) => Location::Sqlite { path: path.clone(), connections: config.database.pool },
        DatabaseUrl::Postgres(url) => {
            Location::Postgres { url: url.expose().clone(), connections: config.database.pool }
        }
    }
}

/// The database as it is, whatever its schema.
pub fn open_store(config: &Config) -> Result<Store, Failure> {
    Ok(Store::open(&location(config), Arc::new(SystemClock))?)
}

pub fn open_blobs(config: &Config) -> Result<Blobs, Failure> {
    Ok(match &config.blobs.url {
        BlobsUrl::File(folder) => Blobs::local(folder)?,
        BlobsUrl::Remote { kind, bucket, prefix } => Blobs::remote(&RemoteSettings {
            kind: *kind,
            bucket: bucket.clone(),
            prefix: prefix.clone(),
            variables: config.blobs.variables.clone(),
            retry_for: config.blobs.retry_for,
        })?,
    })
}

/// Ready to work: an embedded database is brought up to date, a PostgreSQL must be.
pub async fn open(config: &Config) -> Result<Engine, Failure> {
    let store = open_store(config)?;
    match &config.database.url {
        DatabaseUrl::Sqlite(_) => drop(store.migrate().await?),
        DatabaseUrl::Postgres(_) => store.check_schema().await?,
    }
    Ok(Engine {
        store,
        blobs: open_blobs(config)?,
        limits: config.limits.clone(),
        spool: Spool::new(&config.data_dir.join("spool")),
        cpu: Cpu::all_cores(),
        patience: config.import.patience,
    })
}

pub async fn tenant(store: &Store, name_or_id: &str) -> Result<Tenant, Failure> {
    store.system().find_tenant(name_or_id).await?.ok_or_else(|| {
        Failure::problem(format!("there is no tenant {name_or_id:?}; `mailroom tenant list` shows those that are"))
    })
}

pub async fn tenant_store(engine: &Engine, name_or_id: &str) -> Result<TenantStore, Failure> {
    Ok(engine.store.tenant(tenant(&engine.store, name_or_id).await?.id))
}

/// The mailbox that an option names, if it names one.
pub async fn mailbox(store: &TenantStore, address_or_id: Option<&str>) -> Result<Option<Mailbox>, Failure> {
    let Some(given) = address_or_id else { return Ok(None) };
    let address = domain::address::canonical(given).unwrap_or_else(|| given.to_owned());
    match store.find_mailbox(&address).await? {
        Some(mailbox) => Ok(Some(mailbox)),
        None => Err(Failure::problem(format!(
            "this tenant has no mailbox {given:?}; `mailroom tenant show` lists those that it has"
        ))),
    }
}

/// Whether files can be made in a folder, which is made if it is not there.
pub fn is_writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    tempfile::NamedTempFile::new_in(folder).map(drop)
}
