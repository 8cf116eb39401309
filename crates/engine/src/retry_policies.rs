//! The retry policies of jobs, calls and deliveries that differ from the default, which is `jobs::RetryPolicy::DEFAULT`:
//! everything of which an attempt after a failure depends on the attempts before it. Fixed delays for one reason (a busy
//! lease, a paused tenant) stand beside the code that waits.

use std::time::Duration;

use jiff::SignedDuration;
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

/// The pauses between two probe writes to storage that takes none. A disk is freed by a person, and a bucket is back within
/// minutes.
pub(crate) const STORAGE_FIRST_PAUSE: Duration = Duration::from_secs(5);
pub(crate) const STORAGE_MAX_PAUSE: Duration = FIVE_MINUTES;

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

/// Attempts after which a message that always fails is given up, alone.
pub(crate) const MAX_FETCH_ATTEMPTS: u64 = 6;

/// The job that ends a watch. A provider that cannot be reached for so long is not called: the watch expires by itself
/// after a week, and the grant is to be revoked.
pub(crate) const MAX_STOP_ATTEMPTS: u64 = 5;
pub(crate) const MAX_STOP_DURATION: SignedDuration = SignedDuration::from_hours(1);

/// Storing a grant that comes only once, while the lease of its refresh lasts: after so long, doubled, without jitter, for
/// only one process stores it.
pub(crate) const TOKEN_STORE_RETRY: RetryPolicy =
    RetryPolicy { max_retries: u32::MAX, first_delay: Duration::from_millis(100), max_delay: Duration::from_secs(5) };

/// The delays after each failed attempt of a delivery, for a little over three days: a weekend, and time for a person to
/// look at it.
pub(crate) const DELIVERY_RETRY_DELAYS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(5 * 3600),
    Duration::from_secs(10 * 3600),
    Duration::from_secs(14 * 3600),
    Duration::from_secs(20 * 3600),
    Duration::from_secs(24 * 3600),
];

/// The pauses of a webhook after each batch in a row without a delivery. One that is back is noticed within the last.
pub(crate) const ENDPOINT_REST_DELAYS: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(2 * 60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
];
