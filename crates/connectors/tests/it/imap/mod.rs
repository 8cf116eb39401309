//! The IMAP client against a server that follows a script, against ones that mean harm, and against a real one.

mod harm;
mod logins;
mod mutations;
mod reading;
mod script;
mod server;
