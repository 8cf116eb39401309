//! The kit that the tests of all crates share. Which part a test wants:
//!
//! | the test is about | use |
//! |---|---|
//! | the API, jobs, stored rows, without a provider | [`on_each_app`] with a [`TestApp`] |
//! | what the engine does with a provider's answers, call by call | [`ScriptedApp`] with its [`ScriptedConnector`] |
//! | one connector over real HTTP or IMAP, against a simulated provider | [`SimulatedApp`] |
//! | mailboxes that change while they are synced | [`WorldConnector`] and its storms |
//! | a signed token: an issuer's, or Google's of a push | [`signed_tokens`] |
//! | the promises that every connector keeps | [`contract`] |
//! | a kill, a signal, a socket or a role | a process, in `mailroom/tests/it` |
//!
//! Every one of them runs on SQLite and on PostgreSQL. A test waits with [`wait_until`], never by the clock, and ends with
//! `finish`, which fails it if jobs or dead letters are left that it does not name:
//!
//! ```ignore
//! on_each_app(async |app| {
//!     let acme = app.create_tenant("acme").await;
//!     app.import(&acme, "me@acme.test", "INBOX", ["Subject: one\n\nhello"]).await;
//!     let key = app.create_key(&acme, &["read"]).await;
//!     let found = app.get("/v1/emails?q=hello", &key).await.expect(200).json();
//!     assert_eq!(found["items"].as_array().unwrap().len(), 1);
//! })
//! .await;
//! ```
//!
//! Only `[dev-dependencies]` name this crate.

#![expect(clippy::unwrap_used, reason = "a test kit fails the test by panicking")]

pub mod app;
pub mod clock;
pub mod contract;
pub mod http;
pub mod mailbox_operations;
pub mod own_process;
pub mod pages;
pub mod scripted;
pub mod scripted_app;
pub mod signed_tokens;
pub mod simulated;
pub mod world;

pub use app::{AppOptions, TestApp, on_each_app, on_each_app_with};
pub use clock::OffsetClock;
pub use http::HttpReply;
pub use mailbox_operations::MailboxOperations;
pub use scripted::{ConnectorMethod, ScriptedConnector, ScriptedMessage, ScriptedReply};
pub use scripted_app::ScriptedApp;
pub use simulated::{SimulatedApp, SimulatedProvider};
pub use store::testing::{WAIT_DEADLINE, wait_until};
pub use world::WorldConnector;
