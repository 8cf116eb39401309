//! The HTTP API of a running server.

mod changes;
mod isolation;
mod killed;
mod reading;
pub mod scene;
mod webhooks;
