//! What every kind of letter is written with: people, words, files, and what was said before.

use std::sync::Arc;

use jiff::Timestamp;

use super::attachments::{self, File, FileKind};
use super::people::{Contact, Person, PersonId};
use super::profile::Profile;
use super::rng::Rng;
use super::text::Writer;
use super::threads::Threads;
use super::words::Language;

/// Numbers for the recurring files, apart from those of the letters.
const POLICIES: u64 = 3 << 40;

/// Everything a kind of letter works with.
#[derive(Debug)]
pub struct Desk<'a> {
    pub rng: Rng,
    pub profile: &'a Profile,
    pub threads: &'a mut Threads,
    pub assets: &'a Assets,
    pub owner: PersonId,
    pub language: Language,
    pub sent_at: Timestamp,
    /// A file of this many bytes is to be sent along.
    pub file_size: Option<usize>,
}

impl<'a> Desk<'a> {
    pub fn writer(&mut self) -> Writer<'_> {
        Writer::new(&mut self.rng, self.language)
    }

    pub fn person(&self, id: PersonId) -> &'a Person {
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

    /// The file to send along, if one is due: mostly a new one, sometimes one that others have already.
    pub fn file(&mut self) -> Option<Arc<File>> {
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

/// The file nearest in size, if it is near enough to stand for one of that size.
fn nearest<'a>(files: impl Iterator<Item = &'a Arc<File>>, size: usize) -> Option<Arc<File>> {
    let distance = |file: &Arc<File>| file.bytes.len().abs_diff(size);
    files.min_by_key(|file| distance(file)).filter(|file| distance(file) <= size / 8).map(Arc::clone)
}

/// Files that go out again and again.
#[derive(Debug)]
pub struct Assets {
    /// One per company.
    pub logos: Vec<Arc<File>>,
    pub policies: Vec<Arc<File>>,
}

impl Assets {
    pub fn new(seed: u64, profile: &Profile) -> Self {
        let logo = |number| Arc::new(attachments::logo("logo", seed ^ number as u64));
        let mut rng = Rng::for_part(seed, POLICIES);
        let policy = |(number, stem): (usize, &str)| {
            let size = profile.attachments.deciles[2 + 2 * number];
            let mut writer = Writer::new(&mut rng, Language::English);
            Arc::new(attachments::make(FileKind::Pdf, stem, size, &mut writer))
        };
        let stems = ["travel-policy-2024", "terms-of-delivery", "safety-at-work", "price-list-2024"];
        Self {
            logos: (0..profile.companies.len()).map(logo).collect(),
            policies: stems.into_iter().enumerate().map(policy).collect(),
        }
    }
}
