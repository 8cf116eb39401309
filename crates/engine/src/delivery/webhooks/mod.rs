//! Delivers events to webhooks, signed, with retries.
//!
//! Each webhook has a cursor into its tenant's events. The process that holds its lease sends what comes after the
//! cursor and what is to be retried, and records both in one unit. The id of a delivery is derived from webhook and
//! event, so a send that was not recorded is repeated under the same id.

mod deliver;
mod dispatch;
mod endpoints;
mod retry_schedule;
mod send;
mod send_batch;
pub mod sign;
pub mod url;

pub use deliver::WebhookDeliverer;
pub use dispatch::{DispatchSettings, dispatch};
pub use endpoints::{SecretRotation, WebhookDraft, WebhookError, WebhookRequest, check_types, draft, rotate};
pub use send::{SendOutcome, SendResult, WebhookMessage, WebhookSender};
