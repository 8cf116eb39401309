//! Events on their way to other people's servers.

pub mod webhooks;
