//! The simulated IMAP server, as mail programs and scripts meet it.

mod commands;
mod control;
mod place;
