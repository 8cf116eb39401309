//! Outlook, which is spoken to through Microsoft Graph.

pub mod subscriptions;
