//! Providers that call us, on both databases.

mod google;
mod graph;
mod incoming;
mod push_app;
mod subscriptions;
mod watches;
