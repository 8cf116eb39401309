//! What the writers of all mail kinds share: people, words, files, threads, randomness.

use std::sync::Arc;

use jiff::Timestamp;

use super::attachments::{self, AttachmentFile, FileKind};
use super::lexicon::Language;
use super::people::{Contact, Correspondent, PersonId};
use super::profile::Profile;
use super::rng::Rng;
use super::text_writer::TextWriter;
use super::threads::Threads;

/// The random stream of the recurring files.
const RECURRING_FILES_STREAM: u64 = 3 << 40;

/// The inputs for writing one letter.
#[derive(Debug)]
pub struct ComposeContext<'a> {
    pub rng: Rng,
    pub profile: &'a Profile,
    pub threads: &'a mut Threads,
    pub assets: &'a Assets,
    pub owner: PersonId,
    pub language: Language,
    pub sent_at: Timestamp,
    /// The size of the file to attach, if any.
    pub file_size: Option<usize>,
}

impl<'a> ComposeContext<'a> {
    pub fn writer(&mut self) -> TextWriter<'_> {
        TextWriter::new(&mut self.rng, self.language)
    }

    pub fn person(&self, id: PersonId) -> &'a Correspondent {
        &self.profile.companies[id.company].people[id.person]
    }

    pub fn contact(&self, id: PersonId) -> Contact {
        self.person(id).contact.clone()
    }

    pub fn body_size(&mut self) -> usize {
        self.rng.between(self.profile.smallest_body, self.profile.largest_body)
    }

    pub fn message_id(&mut self, domain: &str) -> String {
        if self.rng.percent(50) {
            format!("{}.{}@{domain}", self.sent_at.as_second(), self.rng.token(12))
        } else {
            let rng = &mut self.rng;
            format!("{}-{}-{}-{}@{domain}", rng.hex(8), rng.hex(4), rng.hex(4), rng.hex(12))
        }
    }

    /// Returns the file to attach, if any: mostly a new one, sometimes one that was sent before.
    pub fn file(&mut self) -> Option<Arc<AttachmentFile>> {
        let size = self.file_size?;
        let known = match self.rng.below(100) {
            0..14 => nearest(self.assets.policies.iter(), size),
            14..26 => nearest(self.threads.recent_files(), size),
            _ => None,
        };
        if known.is_some() {
            return known;
        }
        let kind = match self.rng.below(12) {
            0 if size < 4_000 => FileKind::Calendar,
            1 if size < 4_000 => FileKind::Contact,
            _ => FileKind::any_size(&mut self.rng),
        };
        let stem = self.file_stem();
        let file = Arc::new(attachments::make(kind, &stem, size, &mut self.writer()));
        self.threads.remember_file(&file);
        Some(file)
    }

    fn file_stem(&mut self) -> String {
        let number = self.rng.between(1, 12);
        let mut writer = self.writer();
        let project = writer.project();
        let thing = writer.fill("{thing}").replace([' ', '\''], "-");
        format!("{project}_{thing}_v{number}")
    }
}

/// Finds the file nearest in size, if it differs by at most an eighth.
fn nearest<'a>(files: impl Iterator<Item = &'a Arc<AttachmentFile>>, size: usize) -> Option<Arc<AttachmentFile>> {
    let file = files.min_by_key(|file| file.bytes.len().abs_diff(size))?;
    (file.bytes.len().abs_diff(size) <= size / 8).then(|| Arc::clone(file))
}

/// Files that are sent again and again.
#[derive(Debug)]
pub struct Assets {
    /// One per company.
    pub logos: Vec<Arc<AttachmentFile>>,
    pub policies: Vec<Arc<AttachmentFile>>,
}

impl Assets {
    pub fn new(seed: u64, profile: &Profile) -> Self {
        let mut rng = Rng::for_part(seed, RECURRING_FILES_STREAM);
        let policy = |(number, stem): (usize, &str)| {
            let size = profile.attachments.deciles[2 + 2 * number];
            let mut writer = TextWriter::new(&mut rng, Language::English);
            Arc::new(attachments::make(FileKind::Pdf, stem, size, &mut writer))
        };
        let stems = ["travel-policy-2024", "terms-of-delivery", "safety-at-work", "price-list-2024"];
        Self {
            logos: (0..profile.companies.len())
                .map(|number| Arc::new(attachments::logo("logo", seed ^ number as u64)))
                .collect(),
            policies: stems.into_iter().enumerate().map(policy).collect(),
        }
    }
}
