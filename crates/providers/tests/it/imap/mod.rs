//! The IMAP client against a server that follows a script, against ones that mean harm, and against a real one; and the
//! connector against a simulated one.

mod connector;
mod harm;
mod logins;
mod mutations;
mod reading;
mod script;
mod server;

/// What old servers offer.
pub const OLD_CAPABILITIES: &str = "IMAP4rev1";

/// What many servers offer.
pub const COMMON_CAPABILITIES: &str =
    "IMAP4rev1 AUTH=PLAIN UIDPLUS IDLE LITERAL+ ENABLE CONDSTORE SPECIAL-USE LIST-EXTENDED";

/// What servers offer that can tell which messages have vanished.
pub const RESYNC_CAPABILITIES: &str =
    "IMAP4rev1 SASL-IR AUTH=PLAIN ID ENABLE IDLE QRESYNC CONDSTORE LIST-EXTENDED LIST-STATUS ESEARCH UTF8=ACCEPT";
