//! The composer decides who writes what kind of letter when; the kinds themselves are in [`super::kinds`].

use jiff::{SignedDuration, Timestamp};

use super::desk::{Assets, Desk};
use super::kinds::{self, Kind};
use super::letter::Letter;
use super::people::PersonId;
use super::profile::Profile;
use super::rng::Rng;
use super::threads::Threads;
use super::words::Language;

/// Numbers for the plan of attachments, apart from those of the letters.
const SCHEDULE: u64 = 1 << 40;

/// How long before its arrival a letter was sent.
const TRANSIT: SignedDuration = SignedDuration::from_secs(9);

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

    fn compose(&mut self, number: u64) -> Letter {
        // One source per letter: a change in what one kind draws leaves all other letters as they were.
        let mut rng = Rng::for_part(self.seed, number);
        let received_at = self.received_at(number, &mut rng);
        let sent_at = received_at - TRANSIT;
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
