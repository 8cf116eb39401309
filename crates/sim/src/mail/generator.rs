//! Generates the messages of one mailbox, oldest first.

use jiff::Timestamp;

use super::composer::Composer;
use super::kinds::MailKind;
use super::letter::ComposedLetter;
use super::people::Contact;
use super::profile::Profile;
use super::rng::Rng;

/// The random stream of folders and flags.
const FILING_STREAM: u64 = 4 << 40;

/// A message in a mailbox, with facts that tests can compare with a parser's result.
#[derive(Debug)]
pub struct GeneratedMessage {
    /// RFC 5322, lines ended by CRLF.
    pub raw: Vec<u8>,
    pub received_at: Timestamp,
    /// `INBOX`, `Sent` or `Archive`.
    pub folder: &'static str,
    pub seen: bool,
    pub kind: MailKind,
    pub subject: String,
    pub from: Contact,
    pub to: Vec<Contact>,
    pub cc: Vec<Contact>,
    pub message_id: String,
    /// Parts marked as attachments.
    pub attachments: usize,
    /// Pictures shown inside the text.
    pub inline_images: usize,
}

impl GeneratedMessage {
    /// Files a letter in its owner's mailbox: as sent in `Sent`, with the servers' fields everywhere else.
    pub fn filed(letter: &ComposedLetter, seed: u64, owner: &Contact) -> Self {
        let mut rng = Rng::for_part(seed, FILING_STREAM + letter.number);
        let is_sent = letter.from.address == owner.address;
        let folder = match rng.below(5) {
            _ if is_sent => "Sent",
            0 => "Archive",
            _ => "INBOX",
        };
        let seen = is_sent || folder == "Archive" || rng.percent(70);
        let raw = if is_sent { letter.bytes.clone() } else { letter.delivered_to(seed, owner.domain()) };
        Self {
            raw,
            received_at: letter.received_at,
            folder,
            seen,
            kind: letter.kind,
            subject: letter.subject.clone(),
            from: letter.from.clone(),
            to: letter.to.clone(),
            cc: letter.cc.clone(),
            message_id: letter.message_id.clone(),
            attachments: letter.attachments,
            inline_images: letter.inline_images,
        }
    }
}

/// An iterator over the mailbox of a profile's first owner. The same seed and profile make the same bytes on every
/// platform. A message may answer earlier ones, so they come in order.
#[derive(Debug)]
pub struct Generator {
    composer: Composer,
    owner: Contact,
}

impl Generator {
    /// Creates a generator.
    ///
    /// # Panics
    ///
    /// If the profile has no owner.
    pub fn new(seed: u64, mut profile: Profile) -> Self {
        profile.owners.truncate(1);
        let id = profile.owners[0];
        let owner = profile.companies[id.company].people[id.person].contact.clone();
        Self { composer: Composer::new(seed, profile), owner }
    }

    /// Returns the mailbox's owner.
    pub fn owner(&self) -> &Contact {
        &self.owner
    }
}

impl Iterator for Generator {
    type Item = GeneratedMessage;

    fn next(&mut self) -> Option<GeneratedMessage> {
        let letter = self.composer.next()?;
        Some(GeneratedMessage::filed(&letter, self.composer.seed, &self.owner))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.composer.size_hint()
    }
}
