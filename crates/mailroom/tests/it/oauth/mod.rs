//! Gmail mailboxes are let in: by their owners in a browser, by a refresh token, or by their domain; against a Google that
//! does not exist.

mod browser;
mod commands;
mod consent;
mod google;
