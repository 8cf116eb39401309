//! Mailboxes are let in: by their owners in a browser, by a refresh token, or by their organization; against a Google and a
//! Microsoft that do not exist.

mod browser;
mod callbacks;
mod commands;
mod consent;
mod microsoft;
mod scene;
mod site;
