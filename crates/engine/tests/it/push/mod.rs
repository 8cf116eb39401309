//! Providers that call us, on both databases.

mod google;
mod taken;
mod watched;
