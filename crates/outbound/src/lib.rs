//! The one way out: whatever calls other people's servers is made here, and passes the gateway, which applies what limits
//! it.
//!
//! [`limits`] is the table of all limits: of calls, of our own work, and of requests to us.

pub mod breaker;
pub mod budget;
pub mod call_scopes;
pub mod call_settings;
pub mod coordination;
pub mod fetch_limiter;
pub mod gateway;
pub mod http;
pub mod limit_reason;
pub mod limits;
pub mod memory_budget;
pub mod permits;
pub mod poll_limiter;
pub mod rate_limiter;
mod retry_after;
pub mod sliding_window;
pub mod target;
pub mod tls;
pub mod token_bucket;
pub mod usage_meter;

pub use call_settings::{Allowance, CallBudgets, CallSettings};
pub use coordination::Redis;
pub use gateway::Gateway;
pub use limit_reason::LimitReason;
pub use target::{Endpoint, Service, Target, TargetAccount};
