//! A pseudo-random number generator with the same output on every platform and in every release.

/// SplitMix64: eight bytes of state and 64-bit output, so each message can have its own generator.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates an independent stream for one purpose, so that draws for one never shift those for another.
    pub fn for_part(seed: u64, part: u64) -> Self {
        let mut mixer = Self(seed ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Self(mixer.next_u64())
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Draws a number in `0..limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next_u64()) * limit as u128) >> 64) as usize
    }

    /// Draws a number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Picks like [`Rng::pick`], but the first items far more often than the last, as words in real text.
    pub fn pick_skewed<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.skewed(items.len())]
    }

    /// Draws an index roughly by Zipf's law. Every power of two is equally likely: integers only, because `powf`
    /// differs between platforms.
    fn skewed(&mut self, count: usize) -> usize {
        let octaves = (usize::BITS - count.leading_zeros()) as usize;
        let octave = self.below(octaves);
        let first = (1 << octave) - 1;
        let last = ((1 << (octave + 1)) - 2).min(count - 1);
        self.between(first, last)
    }

    /// Draws the index of a weight, in proportion to the weights.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let total: u32 = weights.clone().sum();
        let mut left = self.below(total as usize) as u32;
        for (index, weight) in weights.enumerate() {
            if left < weight {
                return index;
            }
            left -= weight;
        }
        0
    }

    pub fn append_bytes(&mut self, out: &mut Vec<u8>, count: usize) {
        let start = out.len();
        out.resize(start + count, 0);
        self.fill(&mut out[start..]);
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut chunks = bytes.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        let rest = chunks.into_remainder();
        let last = self.next_u64().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Draws lower-case hexadecimal digits, for ids and boundaries.
    pub fn hex(&mut self, digits: usize) -> String {
        self.letters(digits, b"0123456789abcdef")
    }

    /// Draws letters and digits, for ids and in place of signatures.
    pub fn token(&mut self, length: usize) -> String {
        self.letters(length, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
    }

    fn letters(&mut self, length: usize, alphabet: &[u8]) -> String {
        let mut text = String::with_capacity(length);
        let mut bits = 0;
        for position in 0..length {
            if position % 8 == 0 {
                bits = self.next_u64();
            }
            text.push(char::from(alphabet[(bits & 0xFF) as usize % alphabet.len()]));
            bits >>= 8;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_number_of_a_seed_is_fixed() {
        let mut rng = Rng::new(1);

        assert_eq!(rng.next_u64(), 0x910A_2DEC_8902_5CC1);
    }

    #[test]
    fn skewed_pick_prefers_the_first_items() {
        let mut rng = Rng::new(7);
        let mut hits = [0_u32; 100];
        for _ in 0..20_000 {
            hits[rng.skewed(100)] += 1;
        }

        assert!(hits.iter().all(|&count| count > 0));
        assert!(hits[0] > 20 * hits[99]);
    }
}
