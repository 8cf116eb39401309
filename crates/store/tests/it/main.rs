//! One contract for both databases: every store operation, run on SQLite and on PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod blobs;
mod copy;
mod directories;
mod events;
mod failed_messages;
mod ingest;
mod isolation;
mod jobs;
mod legal_hold;
mod listening;
mod migrate;
mod objects;
mod older_schemas;
mod partitions;
mod provider_names;
mod reindex;
mod removed_provider;
mod restored;
mod samples;
mod search;
mod secrets;
mod settings;
mod sql_readers;
mod sql_views;
mod subscriptions;
mod sync;
mod tenants;
mod units;
mod verify;
mod webhooks;
