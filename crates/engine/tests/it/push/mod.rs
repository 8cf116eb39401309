//! Providers that call us, on both databases.

mod google;
mod graph;
mod scene;
mod subscribed;
mod taken;
mod watched;
