//! Scratch databases, for benchmarks and tests.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::postgres::{self, Postgres};
use crate::{Location, StoreError};

/// Makes an empty database beside the one that the URL names and returns its URL.
pub async fn create_database(server_url: &str) -> Result<String, StoreError> {
    let name = database_name();
    run_sql(server_url, &format!("create database {name}")).await?;
    sibling_url(server_url, &name)
}

/// Returns a name that no other scratch database of this server has.
pub(crate) fn database_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("mailroom_scratch_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Returns the URL of another database on the server that the URL names.
pub(crate) fn sibling_url(server_url: &str, name: &str) -> Result<String, StoreError> {
    let Some((base, _)) = server_url.rsplit_once('/') else {
        return Err(StoreError::Misconfigured("the PostgreSQL URL must end in /DATABASE".into()));
    };
    Ok(format!("{base}/{name}"))
}

/// Removes a database that [`create_database`] made.
pub async fn drop_database(server_url: &str, url: &str) -> Result<(), StoreError> {
    let name = url.rsplit('/').next().unwrap_or_default();
    run_sql(server_url, &format!("drop database if exists {name} with (force)")).await
}

/// Runs a statement that is not part of the program.
pub async fn run_sql(url: &str, sql: &str) -> Result<(), StoreError> {
    let db = Postgres::open(url, 1)?;
    db.client().await?.batch_execute(sql).await.map_err(postgres::error)
}

pub fn location(url: String) -> Location {
    Location::Postgres { url, connections: 6 }
}
