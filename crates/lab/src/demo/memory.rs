//! The memory of the server over time, and whether it grows.

use serde::Serialize;

/// Growth from the middle third to the last that is not a leak: caches, buffers and the allocator, and more than chance
/// causes. A server that leaks ten kilobytes of each message exceeds it within half an hour at 20 times the speed.
const MAX_GROWTH: f64 = 0.2;
const MAX_GROWTH_BYTES: u64 = 20 << 20;

/// Resident memory in bytes, at even intervals.
#[derive(Debug, Default)]
pub struct MemorySamples(Vec<u64>);

/// The samples by thirds of the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryThirds {
    /// Median of each third, in bytes.
    pub first: u64,
    pub middle: u64,
    pub last: u64,
    pub most: u64,
    pub is_flat: bool,
}

impl MemorySamples {
    pub fn add(&mut self, bytes: u64) {
        self.0.push(bytes);
    }

    pub fn samples(&self) -> &[u64] {
        &self.0
    }

    /// Returns `None` if there are too few samples.
    pub fn thirds(&self) -> Option<MemoryThirds> {
        let third = self.0.len() / 3;
        if third == 0 {
            return None;
        }
        let [first, middle, last] = [0, third, self.0.len() - third].map(|start| median(&self.0[start..start + third]));
        let allowed = (middle as f64 * (1.0 + MAX_GROWTH)) as u64 + MAX_GROWTH_BYTES;
        let most = self.0.iter().copied().max().unwrap_or_default();
        Some(MemoryThirds { first, middle, last, most, is_flat: last <= allowed })
    }
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(megabytes: impl Iterator<Item = u64>) -> bool {
        MemorySamples(megabytes.map(|megabytes| megabytes << 20).collect()).thirds().unwrap().is_flat
    }

    #[test]
    fn memory_that_keeps_growing_is_not_flat() {
        assert!(flat((0..90).map(|n| if n < 30 { 40 + n } else { 80 })));
        assert!(flat((0..90).map(|n| if n % 10 == 0 { 300 } else { 80 })), "a few moments are nothing");
        assert!(!flat((0..90).map(|n| 60 + n * 2)));
        assert!(!flat((0..90).map(|n| if n < 60 { 80 } else { 130 })));
    }

    #[test]
    fn few_samples_have_no_thirds() {
        assert_eq!(MemorySamples(vec![1, 2]).thirds(), None);
        assert_eq!(MemorySamples(vec![3, 1, 2]).thirds().map(|thirds| thirds.most), Some(3));
    }
}
