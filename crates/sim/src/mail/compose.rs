//! The composer writes one letter after the other; the kinds of letter are in [`super::kinds`].

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::attachments::{self, File, FileKind};
use super::clients::Style;
use super::dates;
use super::kinds::{self, Kind};
use super::mime::{Headers, Part, Role};
use super::people::{Contact, Person, PersonId};
use super::profile::Profile;
use super::rng::Rng;
use super::text::Writer;
use super::threads::Threads;
use super::transport::Route;
use super::words::Language;

/// Streams of numbers that must not touch each other.
const SCHEDULE: u64 = 1 << 40;
const ROUTE: u64 = 2 << 40;
const POLICIES: u64 = 3 << 40;

/// One message as its sender wrote it, before any server touched it, with what is true of it.
#[derive(Debug)]
pub struct Letter {
    pub kind: Kind,
    pub language: Language,
    /// Its place in the generator's sequence.
    pub number: u64,
    pub from: Contact,
    /// Where failures are reported: the sender, a list's own address, or nobody for what must not be answered.
    pub return_path: String,
    pub to: Vec<Contact>,
    pub cc: Vec<Contact>,
    pub subject: String,
    pub message_id: String,
    pub sent_at: Timestamp,
    pub received_at: Timestamp,
    /// Parts marked as attachments.
    pub attachments: usize,
    /// Pictures shown inside the text.
    pub inline_images: usize,
    /// As the sender keeps it; recipients get [`Letter::delivered_to`].
    pub bytes: Vec<u8>,
}

impl Letter {
    pub fn recipients(&self) -> impl Iterator<Item = &Contact> {
        self.to.iter().chain(&self.cc)
    }

    /// The bytes as every recipient at one domain gets them.
    pub fn delivered_to(&self, seed: u64, domain: &str) -> Vec<u8> {
        let mut at_domain = self.recipients().filter(|contact| contact.domain() == domain);
        let only_recipient = match (at_domain.next(), at_domain.next()) {
            (Some(recipient), None) => Some(recipient.address.as_str()),
            _ => None,
        };
        let route = Route {
            return_path: &self.return_path,
            from_domain: self.return_path.split_once('@').map_or(self.from.domain(), |(_, domain)| domain),
            to_domain: domain,
            only_recipient,
            received_at: self.received_at,
        };
        let domain_mark = domain.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let fields = route.fields(&mut Rng::for_part(seed ^ domain_mark, ROUTE + self.number));
        let mut raw = Vec::with_capacity(fields.len() + self.bytes.len());
        raw.extend_from_slice(fields.as_bytes());
        raw.extend_from_slice(&self.bytes);
        raw
    }
}

/// What a kind of letter decides; the composer adds the rest.
#[derive(Debug)]
pub struct Draft {
    pub kind: Kind,
    pub style: Style,
    pub language: Language,
    pub from: Contact,
    /// Given where it is not the sender's address.
    pub return_path: Option<String>,
    pub to: Vec<Contact>,
    pub cc: Vec<Contact>,
    pub subject: String,
    pub message_id: String,
    /// Whole further header fields, each ended by CRLF.
    pub fields: String,
    pub body: Part,
}

impl Draft {
    pub fn into_letter(self, number: u64, sent_at: Timestamp, received_at: Timestamp) -> Letter {
        let mut bytes = self.header_fields(sent_at).into_bytes();
        self.body.write(&mut bytes);
        Letter {
            kind: self.kind,
            language: self.language,
            number,
            sent_at,
            received_at,
            attachments: self.body.count(Role::Attached),
            inline_images: self.body.count(Role::Inline),
            return_path: self.return_path.unwrap_or_else(|| self.from.address.clone()),
            from: self.from,
            to: self.to,
            cc: self.cc,
            subject: self.subject,
            message_id: self.message_id,
            bytes,
        }
    }

    fn header_fields(&self, sent_at: Timestamp) -> String {
        let Style { client, charset } = self.style;
        let mut headers = Headers::default();
        headers.text.reserve(1_024);
        headers.field("Message-ID", &format!("<{}>", self.message_id));
        headers.field("Date", &dates::rfc5322(sent_at, dates::utc_offset_hours(self.language)));
        headers.field("MIME-Version", "1.0");
        for (name, people) in [("From", std::slice::from_ref(&self.from)), ("To", &self.to), ("Cc", &self.cc)] {
            if !people.is_empty() {
                let pairs = people.iter().map(|contact| (contact.name.as_str(), contact.address.as_str()));
                headers.addresses(name, pairs, charset, client.words);
            }
        }
        headers.unstructured("Subject", &self.subject, charset, client.words);
        headers.text.push_str(&self.fields);
        headers.text
    }
}

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
    fn new(seed: u64, profile: &Profile) -> Self {
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

/// Writes the letters of a profile in order of time. What is remembered between two letters is bounded.
#[derive(Debug)]
pub struct Composer {
    pub seed: u64,
    pub profile: Profile,
    assets: Assets,
    threads: Threads,
    number: u64,
}

impl Composer {
    pub fn new(seed: u64, profile: Profile) -> Self {
        let assets = Assets::new(seed, &profile);
        Self { seed, profile, assets, threads: Threads::default(), number: 0 }
    }

    /// How long before its arrival a letter was sent.
    const TRANSIT: SignedDuration = SignedDuration::from_secs(9);

    fn compose(&mut self, number: u64) -> Letter {
        // One source per letter: a change in what one kind draws leaves all other letters as they were.
        let mut rng = Rng::for_part(self.seed, number);
        let received_at = self.received_at(number, &mut rng);
        let sent_at = received_at - Self::TRANSIT;
        let owner = *rng.pick(&self.profile.owners);
        let language = self.language(owner, &mut rng);
        let file_size = self.file_size(number);
        let kind = if file_size.is_some() { Kind::carrying(&mut rng) } else { self.kind(&mut rng) };
        let desk = Desk {
            rng,
            profile: &self.profile,
            threads: &mut self.threads,
            assets: &self.assets,
            owner,
            language,
            sent_at,
            file_size,
        };
        kinds::write(kind, desk).into_letter(number, sent_at, received_at)
    }

    fn kind(&self, rng: &mut Rng) -> Kind {
        self.profile.kinds[rng.weighted(self.profile.kinds.iter().map(|(_, weight)| *weight))].0
    }

    fn language(&self, owner: PersonId, rng: &mut Rng) -> Language {
        if rng.percent(50) {
            return self.profile.companies[owner.company].language;
        }
        self.profile.languages[rng.weighted(self.profile.languages.iter().map(|(_, weight)| *weight))].0
    }

    /// The time of letter `number`: later than the one before, and mostly in office hours.
    fn received_at(&self, number: u64, rng: &mut Rng) -> Timestamp {
        const DAY: i64 = 86_400;
        let (from, to) = (self.profile.from.as_second(), self.profile.to.as_second());
        let step = i128::from(to - from) * 1_000 / (self.profile.messages.max(1) as i128);
        let second = from + ((step * i128::from(number) + step * rng.below(1_000) as i128 / 1_000) / 1_000) as i64;
        let (day, second) = (second.div_euclid(DAY), second.rem_euclid(DAY));
        // A tenth of the day's mail before seven, a sixth after six; the order of letters stays.
        let second = match second {
            ..8_640 => second * 25_200 / 8_640,
            8_640..72_000 => 25_200 + (second - 8_640) * 39_600 / 63_360,
            _ => 64_800 + (second - 72_000) * 21_600 / 14_400,
        };
        Timestamp::new(day * DAY + second, 0).unwrap_or(self.profile.to)
    }

    /// Which letters carry a file, and how large. Both follow a plan instead of chance, so that even a short mailbox
    /// has the share and the mean that were asked for.
    fn file_size(&self, number: u64) -> Option<usize> {
        const BLOCK: u64 = 20;
        let sizes = self.profile.attachments;
        let (block, place) = (number / BLOCK, (number % BLOCK) as usize);
        let mut rng = Rng::for_part(self.seed, SCHEDULE + block);
        let mut order: [usize; BLOCK as usize] = std::array::from_fn(|index| index);
        for index in (1..order.len()).rev() {
            order.swap(index, rng.below(index + 1));
        }
        if order[place] >= sizes.per_twenty {
            return None;
        }
        let files = (self.profile.messages as u64 * sizes.per_twenty as u64).div_ceil(BLOCK).max(1);
        let file = block * sizes.per_twenty as u64 + order[place] as u64;
        // Steps of the golden ratio visit every size once and large and small ones in turn.
        Some(sizes.size_at(file * golden_stride(files) % files, files))
    }
}

/// About 0.618 of `count`, and without a common divisor so that its multiples reach every number below `count`.
fn golden_stride(count: u64) -> u64 {
    let common_divisor = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (1..=count * 618 / 1_000).rev().find(|stride| common_divisor(*stride, count) == 1).unwrap_or(1)
}

impl Iterator for Composer {
    type Item = Letter;

    fn next(&mut self) -> Option<Letter> {
        if self.number >= self.profile.messages as u64 {
            return None;
        }
        let letter = self.compose(self.number);
        self.number += 1;
        Some(letter)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.profile.messages - self.number as usize;
        (left, Some(left))
    }
}
