//! The IMAP client against a server that follows a script, against ones that mean harm, and against a real one; and the
//! connector against a simulated one.

mod follow;
mod harm;
mod logins;
mod mutations;
mod reading;
mod script;
mod server;
