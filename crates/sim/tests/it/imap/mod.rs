//! The simulated IMAP server, through IMAP and its control API.

mod commands;
mod control;
mod harness;
