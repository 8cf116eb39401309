//! What an operator can do to the API keys of a tenant.

mod create;
mod revoke;

pub use create::{CreatedKey, NewKey, create};
pub use revoke::revoke;
