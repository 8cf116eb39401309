//! What benchmarks and the demo need of the binary: installations of Mailroom, built from settings as for any other command.

use std::path::Path;
use std::sync::Arc;

use domain::SystemClock;
use engine::Engine;
use engine::sync::Syncer;
use futures_util::future::BoxFuture;
use jobs::Worker;
use store::{Location, Store, TenantStore};
use terminal::Failure;

/// An environment variable that holds a setting, with its value.
pub type Variable = (String, String);

/// A Mailroom as its settings describe it.
pub trait Installation: Send + Sync {
    /// Loads another installation, from a settings file and environment variables alone.
    fn load(&self, file: Option<&Path>, variables: Vec<Variable>) -> Result<Box<dyn Installation>, Failure>;

    fn data_dir(&self) -> &Path;

    fn database(&self) -> Location;

    /// Opens the engine. An SQLite database is migrated; a PostgreSQL must have the current schema.
    fn open(&self) -> BoxFuture<'_, Result<Engine, Failure>>;

    /// Creates the syncer of this process; `holder` is its name as a holder of leases.
    fn syncer(&self, engine: &Engine, holder: &str) -> Result<Syncer, Failure>;

    /// Starts a worker for jobs of all kinds.
    fn start_worker(&self, syncer: &Syncer, name: &str) -> Worker;
}

/// Brings the schema of an installation's database up to date.
pub async fn migrate(installation: &dyn Installation) -> Result<(), Failure> {
    Store::open(&installation.database(), Arc::new(SystemClock))?.migrate().await?;
    Ok(())
}

/// Returns the store of a tenant. Fails if the tenant does not exist.
pub async fn tenant_store(engine: &Engine, name: &str) -> Result<TenantStore, Failure> {
    let tenant = engine.store.system().find_tenant(name).await?;
    let tenant = tenant.ok_or_else(|| Failure::problem(format!("there is no tenant {name:?}")))?;
    Ok(engine.store.tenant(tenant.id))
}
