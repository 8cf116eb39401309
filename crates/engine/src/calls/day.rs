//! How many bytes a mailbox may fetch in a day.

use domain::Provider;
use store::sql::mailboxes::Mailbox;

/// Google locks an account for a day that downloads more than 2,500 MB by IMAP. Others read the mailbox as well.
const GMAIL: u64 = 2_000_000_000;

const GMAILS_HOSTS: [&str; 2] = ["imap.gmail.com", "imap.googlemail.com"];

/// What the mailbox says itself, else what was set for all at IMAP servers, else what its server is known to bear.
/// 0: as many as one likes; `None`: nobody has said anything.
pub fn bytes_per_day(mailbox: &Mailbox, at_imap: Option<u64>) -> Option<u64> {
    let own = mailbox.settings["bytes_per_day"].as_u64();
    if own.is_some() || mailbox.provider != Provider::Imap {
        return own;
    }
    let host = mailbox.settings["connection"]["host"].as_str().unwrap_or_default();
    let is_gmail = GMAILS_HOSTS.iter().any(|gmails| gmails.eq_ignore_ascii_case(host.trim_end_matches('.')));
    at_imap.or_else(|| is_gmail.then_some(GMAIL))
}
