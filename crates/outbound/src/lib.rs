//! The way out: calls of connectors to providers pass the gateway, which applies what limits them. Connections that wait
//! for news (IMAP IDLE) and webhooks do not: they have limits of their own.
//!
//! [`limits`] has the table of all limits.

pub mod breaker;
pub mod budget;
pub mod call_limiter;
pub mod coordination;
pub mod gateway;
pub mod http;
pub mod limits;
mod retry_after;
pub mod sliding_window;
pub mod target;
pub mod tls;
pub mod usage_meter;

pub use coordination::Redis;
pub use gateway::Gateway;
pub use limits::{Allowance, CallBudgets, CallSettings};
pub use target::{Endpoint, Target};
