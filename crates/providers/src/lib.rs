//! Connectors to mail providers. A connector translates and nothing more: its caller decides when to call, how often, and
//! what to store.
//!
//! Each provider has a folder, whose `mod.rs` is its [`Connector`](domain::Connector); [`registry`] lists them. CONTRIBUTING has the recipe for a new one.

pub mod app;
mod folder_diff;
pub mod gmail;
pub mod imap;
pub mod jmap;
mod json_stream;
mod oauth;
pub mod outlook;
mod people;
mod provider_text;
pub mod rates;
pub mod registry;
pub mod settings_source;

pub use outbound::http;
