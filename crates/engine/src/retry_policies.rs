//! The retry policies of jobs and calls that differ from the default, which is `jobs::RetryPolicy::DEFAULT`. Fixed delays
//! for one reason (a busy lease, a paused tenant) stand beside the code that waits.

use std::time::Duration;

use jobs::RetryPolicy;

const SECOND: Duration = Duration::from_secs(1);
const FIVE_MINUTES: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

/// Jobs that list history, compare a mailbox or fetch messages: a provider that is unavailable for hours must not end
/// them, because what it holds is still to be had.
pub(crate) const FETCH_RETRY: RetryPolicy =
    RetryPolicy { max_retries: 500, first_delay: SECOND, max_delay: FIVE_MINUTES };

/// Jobs that sync or poll a mailbox: one that cannot be understood becomes a dead letter after about twenty minutes,
/// and is polled again at long intervals. A provider that is unavailable spends no attempt.
pub(crate) const SYNC_RETRY: RetryPolicy =
    RetryPolicy { max_retries: 12, first_delay: SECOND, max_delay: FIVE_MINUTES };

/// Jobs whose provider is unavailable, which spends no attempt: after 1, 2, 4, 8 and 16 seconds with full jitter, and
/// every five minutes at last.
pub(crate) const UNAVAILABLE_RETRY: RetryPolicy =
    RetryPolicy { max_retries: u32::MAX, first_delay: SECOND, max_delay: FIVE_MINUTES };

/// Watches that a provider refuses: after one minute, two, four, and every hour at last. Without a watch a mailbox is
/// only slower.
pub(crate) const WATCH_RETRY: RetryPolicy =
    RetryPolicy { max_retries: u32::MAX, first_delay: Duration::from_secs(60), max_delay: HOUR };

/// Listening to a mailbox (IMAP IDLE).
pub(crate) const LISTEN_RETRY: RetryPolicy =
    RetryPolicy { max_retries: u32::MAX, first_delay: SECOND, max_delay: FIVE_MINUTES };

/// The job that revokes a grant: a provider that is unavailable for a weekend is still told. Then the secret is deleted
/// all the same: its owner can revoke it at the provider.
pub(crate) const REVOKE_RETRY: RetryPolicy =
    RetryPolicy { max_retries: 150, first_delay: Duration::from_secs(10), max_delay: HOUR };
