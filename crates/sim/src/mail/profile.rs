//! The profile of generated mail: people, time, languages, kinds, sizes.

use jiff::Timestamp;

use super::kinds::MailKind;
use super::lexicon::Language;
use super::people::{Company, PersonId, companies};

#[derive(Debug, Clone)]
pub struct Profile {
    pub companies: Vec<Company>,
    /// The owners of the generated mail: each message has at least one of them as its sender or recipient.
    pub owners: Vec<PersonId>,
    pub messages: usize,
    /// The start of the time that messages are spread over. Fixed, because equal profiles make equal bytes.
    pub from: Timestamp,
    pub to: Timestamp,
    /// The weights of languages when people do not write their company's own.
    pub languages: Vec<(Language, u32)>,
    pub kinds: Vec<(MailKind, u32)>,
    /// The minimum bytes of text and markup per message; the maximum follows.
    pub smallest_body: usize,
    pub largest_body: usize,
    pub attachments: AttachmentMix,
    /// Whether signatures show the company's logo: the same bytes in hundreds of messages.
    pub has_logos: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct AttachmentMix {
    /// The number of messages in twenty that carry a file.
    pub per_twenty: usize,
    /// Deciles of the file size in bytes, from the minimum to the maximum.
    pub deciles: [usize; 11],
}

impl AttachmentMix {
    /// Returns the quantile `part / whole` of the file size.
    pub fn size_at(&self, part: u64, whole: u64) -> usize {
        let (decile, rest) = ((part * 10 / whole) as usize, part * 10 % whole);
        let (low, high) = (self.deciles[decile.min(9)], self.deciles[decile.min(9) + 1]);
        low + ((high - low) as u64 * rest / whole) as usize
    }
}

impl Profile {
    /// Builds an ordinary profile: the first person of the first company, three months, all languages and kinds.
    pub fn ordinary(seed: u64, messages: usize) -> Self {
        Self {
            companies: companies(seed),
            owners: vec![PersonId { company: 0, person: 0 }],
            messages,
            from: at(1_704_096_000), // 2024-01-01
            to: at(1_711_958_400),   // 2024-04-01
            languages: vec![
                (Language::English, 30),
                (Language::German, 14),
                (Language::French, 12),
                (Language::Spanish, 10),
                (Language::Polish, 7),
                (Language::Greek, 5),
                (Language::Russian, 6),
                (Language::Arabic, 4),
                (Language::Chinese, 6),
                (Language::Japanese, 6),
            ],
            kinds: MailKind::ORDINARY.to_vec(),
            smallest_body: 600,
            largest_body: 6_000,
            attachments: AttachmentMix {
                per_twenty: 4,
                deciles: [1_200, 2_500, 4_000, 7_000, 11_000, 16_000, 24_000, 36_000, 55_000, 90_000, 250_000],
            },
            has_logos: true,
        }
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::constant(second, 0)
}
