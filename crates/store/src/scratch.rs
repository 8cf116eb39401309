//! Databases to try things on: for benchmarks and tests.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::postgres::{self, Postgres};
use crate::{Location, StoreError};

/// Makes an empty database beside the one that the URL names and gives its URL.
pub async fn create_database(server_url: &str) -> Result<String, StoreError> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let name = format!("mailroom_scratch_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    run_sql(server_url, &format!("create database {name}")).await?;
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

/// One statement, outside of our code.
pub async fn run_sql(url: &str, sql: &str) -> Result<(), StoreError> {
    let db = Postgres::open(url, 1)?;
    db.client().await?.batch_execute(sql).await.map_err(postgres::error)
}

/// While it lives, PostgreSQL keeps every row that was there when it began, as it does for a forgotten transaction.
#[derive(Debug)]
pub struct PinnedSnapshot(#[expect(dead_code, reason = "held, not used")] deadpool_postgres::Object);

pub async fn pin_snapshot(url: &str) -> Result<PinnedSnapshot, StoreError> {
    let client = Postgres::open(url, 1)?.client().await?;
    let begin = "begin isolation level repeatable read; select count(*) from pg_class";
    client.batch_execute(begin).await.map_err(postgres::error)?;
    Ok(PinnedSnapshot(client))
}

pub fn location(url: String) -> Location {
    Location::Postgres { url, connections: 6 }
}
