//! Composes letters: decides author, kind, time and attachment. The kinds are in [`super::kinds`].

use jiff::{SignedDuration, Timestamp};

use super::compose_context::{Assets, ComposeContext};
use super::kinds::{self, MailKind};
use super::letter::ComposedLetter;
use super::lexicon::Language;
use super::people::PersonId;
use super::profile::Profile;
use super::rng::Rng;
use super::threads::Threads;

/// The random stream of the attachment plan.
const ATTACHMENT_PLAN_STREAM: u64 = 1 << 40;

/// The time between sending and arrival.
const TRANSIT_TIME: SignedDuration = SignedDuration::from_secs(9);

/// An iterator over a profile's letters in order of time. Its memory is bounded.
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

    fn compose(&mut self, number: u64) -> ComposedLetter {
        // One random source per letter, so that a change of one kind leaves all other letters unchanged.
        let mut rng = Rng::for_part(self.seed, number);
        let received_at = self.received_at(number, &mut rng);
        let sent_at = received_at - TRANSIT_TIME;
        let owner = *rng.pick(&self.profile.owners);
        let language = self.language(owner, &mut rng);
        let file_size = self.file_size(number);
        let kind = if file_size.is_some() { MailKind::carrying(&mut rng) } else { self.kind(&mut rng) };
        let context = ComposeContext {
            rng,
            profile: &self.profile,
            threads: &mut self.threads,
            assets: &self.assets,
            owner,
            language,
            sent_at,
            file_size,
        };
        kinds::write(kind, context).into_letter(number, sent_at, received_at)
    }

    fn kind(&self, rng: &mut Rng) -> MailKind {
        self.profile.kinds[rng.weighted(self.profile.kinds.iter().map(|(_, weight)| *weight))].0
    }

    fn language(&self, owner: PersonId, rng: &mut Rng) -> Language {
        if rng.percent(50) {
            return self.profile.companies[owner.company].language;
        }
        self.profile.languages[rng.weighted(self.profile.languages.iter().map(|(_, weight)| *weight))].0
    }

    /// Returns the arrival time of a letter: later than the one before, and mostly in office hours.
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

    /// Returns the size of the letter's attachment, if it has one. Both follow a plan instead of chance, so that even
    /// a short mailbox has the requested share and mean.
    fn file_size(&self, number: u64) -> Option<usize> {
        const BLOCK: u64 = 20;
        let sizes = self.profile.attachments;
        let (block, place) = (number / BLOCK, (number % BLOCK) as usize);
        let mut rng = Rng::for_part(self.seed, ATTACHMENT_PLAN_STREAM + block);
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

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Returns a number near 0.618 of `count` and coprime to it, so that its multiples reach every number below `count`.
fn golden_stride(count: u64) -> u64 {
    (1..=count * 618 / 1_000).rev().find(|stride| common_divisor(*stride, count) == 1).unwrap_or(1)
}

impl Iterator for Composer {
    type Item = ComposedLetter;

    fn next(&mut self) -> Option<ComposedLetter> {
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
