//! The mailbox that benchmarks use.

use super::generator::Generator;
use super::kinds::MailKind;
use super::profile::{AttachmentMix, Profile};

/// Generates mail of 17.7 KB on average: 10,000 messages are 177 MB. 15 % carry a file of 30 to 300 KB, the rest are 1
/// to 6 KB of text and HTML; any other count keeps these proportions.
pub fn bench_mailbox(seed: u64, messages: usize) -> Generator {
    Generator::new(seed, bench_profile(seed, messages))
}

pub fn bench_profile(seed: u64, messages: usize) -> Profile {
    // A forwarded message would be one more attachment, and far smaller than what is measured here.
    let kinds = MailKind::ORDINARY.into_iter().filter(|(kind, _)| *kind != MailKind::ForwardAttached).collect();
    Profile {
        kinds,
        smallest_body: 1_000,
        largest_body: 6_000,
        attachments: AttachmentMix {
            per_twenty: 3,
            deciles: [30_000, 31_000, 33_000, 35_000, 38_000, 41_000, 46_000, 52_000, 64_000, 98_000, 300_000],
        },
        has_logos: false,
        ..Profile::ordinary(seed, messages)
    }
}
