//! Mailboxes that are made when somebody first looks into them, so that ten thousand of them cost little.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;

use crate::letters::Letters;

/// What a mailbox is made of: always the same out of the same.
#[derive(Debug)]
pub struct Beginning {
    pub seed: u64,
    pub messages: usize,
    /// When it was asked for: its mail is older.
    pub at: Timestamp,
    pub letters: Arc<Letters>,
}

#[derive(Debug)]
pub struct Lazily<A> {
    beginning: Beginning,
    make: fn(&Beginning) -> A,
    made: OnceLock<Mutex<A>>,
}

impl<A> Lazily<A> {
    pub fn new(beginning: Beginning, make: fn(&Beginning) -> A) -> Self {
        Self { beginning, make, made: OnceLock::new() }
    }

    pub fn get(&self) -> MutexGuard<'_, A> {
        let made = self.made.get_or_init(|| Mutex::new((self.make)(&self.beginning)));
        made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that is known of the beginning, or has to be looked up.
    pub fn look<T>(&self, of_beginning: impl FnOnce(&Beginning) -> T, of_made: impl FnOnce(&A) -> T) -> T {
        match self.made.get() {
            None => of_beginning(&self.beginning),
            Some(made) => of_made(&made.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
