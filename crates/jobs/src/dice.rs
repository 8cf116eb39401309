//! Randomness as an argument, so that tests can know it.

/// Where jitter and trace ids come from.
pub trait Dice: Send + Sync + std::fmt::Debug {
    fn bits(&self) -> u64;

    /// At least 0, less than 1.
    fn fraction(&self) -> f64 {
        // The 53 bits that a float keeps exactly.
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The operating system's.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDice;

impl Dice for SystemDice {
    fn bits(&self) -> u64 {
        // Without randomness there is no jitter, which harms nobody.
        getrandom::u64().unwrap_or(0)
    }
}
