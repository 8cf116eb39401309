//! Accounts that are generated on first use, so that ten thousand of them are cheap.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jiff::Timestamp;

use crate::letter_pool::LetterPool;
use crate::world::SimAccount;

/// The inputs that determine an account's initial mail.
#[derive(Debug)]
pub struct AccountSeed {
    pub seed: u64,
    pub messages: usize,
    /// The creation time; the initial mail is older.
    pub at: Timestamp,
    pub letters: Arc<LetterPool>,
}

impl AccountSeed {
    fn generate<A: SimAccount>(&self) -> A {
        let mut account = A::new(self.seed);
        account.fill(self.messages, &self.letters, self.at);
        account
    }
}

#[derive(Debug)]
pub struct LazyAccount<A> {
    seed: AccountSeed,
    account: OnceLock<Mutex<A>>,
}

impl<A: SimAccount> LazyAccount<A> {
    pub fn new(seed: AccountSeed) -> Self {
        Self { seed, account: OnceLock::new() }
    }

    pub fn get(&self) -> MutexGuard<'_, A> {
        let account = self.account.get_or_init(|| Mutex::new(self.seed.generate()));
        account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of messages without generating the account.
    pub fn message_count(&self) -> usize {
        match self.account.get() {
            None => self.seed.messages,
            Some(account) => account.lock().unwrap_or_else(PoisonError::into_inner).message_count(),
        }
    }
}
