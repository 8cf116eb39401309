//! The HTTP API on its router, in this process, over SQLite and PostgreSQL.

#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

mod changes;
mod directories;
mod edge;
mod event_streams;
mod gmail_pushes;
mod graph_pushes;
mod idempotency;
mod isolation;
mod log_capture;
mod oauth;
mod operations;
mod reading;
mod settings;
mod signed_urls;
mod tenants;
mod tokens;
mod two_tenants;
mod usage;
mod webhooks;
