//! The memory of the server over time, and whether it grows.

use serde::Serialize;

/// What caches, buffers and the allocator may take more in the last third than in the middle one, and so much that chance
/// never gets there. At 20 times the speed, who keeps ten kilobytes of each message gets there within half an hour.
const SLACK: f64 = 0.2;
const SLACK_BYTES: u64 = 20 << 20;

/// Taken at even distances.
#[derive(Debug, Default)]
pub struct Memory(Vec<u64>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thirds {
    /// Medians of the three, in bytes.
    pub first: u64,
    pub middle: u64,
    pub last: u64,
    pub most: u64,
    pub is_flat: bool,
}

impl Memory {
    pub fn add(&mut self, bytes: u64) {
        self.0.push(bytes);
    }

    pub fn samples(&self) -> &[u64] {
        &self.0
    }

    /// Nothing: there are too few.
    pub fn thirds(&self) -> Option<Thirds> {
        let third = self.0.len() / 3;
        if third == 0 {
            return None;
        }
        let [first, middle, last] = [0, third, self.0.len() - third].map(|start| median(&self.0[start..start + third]));
        let allowed = (middle as f64 * (1.0 + SLACK)) as u64 + SLACK_BYTES;
        let most = self.0.iter().copied().max().unwrap_or_default();
        Some(Thirds { first, middle, last, most, is_flat: last <= allowed })
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
        Memory(megabytes.map(|megabytes| megabytes << 20).collect()).thirds().unwrap().is_flat
    }

    #[test]
    fn what_warms_up_or_jumps_is_flat_and_what_keeps_growing_is_not() {
        assert!(flat((0..90).map(|n| if n < 30 { 40 + n } else { 80 })));
        assert!(flat((0..90).map(|n| if n % 10 == 0 { 300 } else { 80 })), "a few moments are nothing");
        assert!(!flat((0..90).map(|n| 60 + n * 2)));
        assert!(!flat((0..90).map(|n| if n < 60 { 80 } else { 130 })));
    }

    #[test]
    fn of_too_little_nothing_is_said() {
        assert_eq!(Memory(vec![1, 2]).thirds(), None);
        assert_eq!(Memory(vec![3, 1, 2]).thirds().map(|thirds| thirds.most), Some(3));
    }
}
