//! Randomness as an argument, so that tests can fix it.

/// A source of randomness for jitter and trace ids.
pub trait RandomSource: Send + Sync + std::fmt::Debug {
    fn next_u64(&self) -> u64;

    /// Returns a number from 0 (included) to 1 (excluded).
    fn next_fraction(&self) -> f64 {
        // The 53 bits that a float keeps exactly.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn next_u64(&self) -> u64 {
        // Without randomness there is no jitter, which is harmless.
        getrandom::u64().unwrap_or(0)
    }
}
