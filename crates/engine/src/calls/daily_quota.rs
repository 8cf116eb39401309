//! The daily byte quota of a mailbox.

use domain::Provider;
use store::sql::mailboxes::Mailbox;

/// Google locks an account for a day that downloads more than 2,500 MB by IMAP. Other programs read the mailbox as well.
const GMAIL_BYTES_PER_DAY: u64 = 2_000_000_000;

const GMAIL_HOSTS: [&str; 2] = ["imap.gmail.com", "imap.googlemail.com"];

/// Returns the quota of a mailbox: its own setting or its tenant's, else the setting for all IMAP mailboxes, else what its
/// server is known to allow. 0: unlimited; `None`: not set.
pub fn bytes_per_day(mailbox: &Mailbox, at_imap: Option<u64>) -> Option<u64> {
    let set = mailbox.settings_in_force().bytes_per_day;
    if set.is_some() || mailbox.provider != Provider::Imap {
        return set;
    }
    let host = mailbox.settings.connection["host"].as_str().unwrap_or_default();
    let is_gmail = GMAIL_HOSTS.iter().any(|gmails| gmails.eq_ignore_ascii_case(host.trim_end_matches('.')));
    at_imap.or_else(|| is_gmail.then_some(GMAIL_BYTES_PER_DAY))
}
