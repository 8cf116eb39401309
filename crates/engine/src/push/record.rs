//! What came at the same time is recorded with the looks at mailboxes that follow, in one commit.

use std::collections::{HashMap, HashSet};

use domain::{Lane, Provider, Sha256};
use jobs::new_job;
use store::sql::jobs::NewJob;
use store::sql::pushes::{Learned, Look, PUSHED_BEFORE, Pushed};
use store::{Store, StoreError};

use super::Outcome;
use crate::jobs::WatchMailbox;
use crate::sync::{SyncMailbox, only_one};

/// Another process may record the same messages at the same moment, but hardly again and again.
const TRIES: usize = 5;

/// What a provider told us of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// What it calls this, however often it delivers it. Nothing: it may come again without being known.
    pub message: Option<String>,
    /// In canonical case.
    pub address: String,
    pub about: About,
    /// What the subscription is called that it comes for, by what is said for it, if nobody knew.
    pub names: Option<(Sha256, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum About {
    /// Something happened there.
    News,
    /// Something is gone there, which only a look at every folder may show.
    Gone,
    /// It stops telling us unless it is asked anew.
    Ending,
    /// It tells us no more.
    Ended,
    /// It could not tell us everything.
    Missed,
}

/// What all that was told of one account means.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meaning {
    pub is_told: bool,
    pub looks: bool,
    pub sweeps: bool,
    pub renews: bool,
    pub is_ended: bool,
}

impl Meaning {
    fn add(&mut self, about: About) {
        self.is_told |= matches!(about, About::News | About::Gone);
        self.looks |= about != About::Ending;
        self.sweeps |= matches!(about, About::Gone | About::Ended | About::Missed);
        self.renews |= matches!(about, About::Ending | About::Ended);
        self.is_ended |= about == About::Ended;
    }

    /// For one mailbox of the account.
    pub fn look(self, store: &Store, pushed: Pushed) -> Result<Look, StoreError> {
        let failed = |e: String| StoreError::Other(e.into());
        let mailbox = pushed.mailbox;
        let mut jobs = Vec::new();
        if self.looks {
            let job = new_job(&SyncMailbox { mailbox }, store.clock(), None).map_err(|e| failed(e.to_string()))?;
            jobs.push(only_one(NewJob { lane: Lane::High, ..job }, mailbox));
        }
        if self.renews {
            jobs.push(WatchMailbox::now(store.clock(), mailbox).map_err(|e| failed(e.to_string()))?);
        }
        let Self { is_told, sweeps, renews, .. } = self;
        Ok(Look { pushed, jobs, is_told, sweeps, renews })
    }
}

pub(super) async fn record(store: Store, provider: Provider, told: Vec<Told>) -> Result<Vec<Outcome>, StoreError> {
    for _ in 0..TRIES {
        match try_record(&store, provider, &told).await {
            Err(StoreError::Precondition(PUSHED_BEFORE)) => {}
            recorded => {
                if recorded.as_ref().is_ok_and(|outcomes| outcomes.contains(&Outcome::Accepted))
                    && let Err(e) = store.tell_of_jobs().await
                {
                    tracing::debug!("workers are not told of new jobs: {e}");
                }
                return recorded;
            }
        }
    }
    Err(StoreError::Unavailable(PUSHED_BEFORE.into()))
}

async fn try_record(store: &Store, provider: Provider, told: &[Told]) -> Result<Vec<Outcome>, StoreError> {
    let system = store.system();
    let messages: Vec<String> = told.iter().filter_map(|told| told.message.clone()).collect();
    let mut known = match messages.is_empty() {
        true => HashSet::new(),
        false => system.list_known_pushes(provider, messages).await?,
    };
    let is_fresh = |told: &Told| told.message.as_ref().is_none_or(|message| known.insert(message.clone()));
    let is_fresh: Vec<bool> = told.iter().map(is_fresh).collect();
    let mut meanings: HashMap<&str, Meaning> = HashMap::new();
    for (told, _) in told.iter().zip(&is_fresh).filter(|(_, is_fresh)| **is_fresh) {
        meanings.entry(&told.address).or_default().add(told.about);
    }
    let mut found: HashMap<String, Vec<Pushed>> = HashMap::new();
    if !meanings.is_empty() {
        for pushed in
            system.list_pushed(provider, meanings.keys().map(|address| (*address).to_owned()).collect()).await?
        {
            found.entry(pushed.address.clone()).or_default().push(pushed);
        }
    }
    let outcome = |(told, is_fresh): (&Told, &bool)| match is_fresh {
        false => Outcome::Repeated,
        true if found.contains_key(&told.address) => Outcome::Accepted,
        true => Outcome::Unknown,
    };
    let outcomes: Vec<Outcome> = told.iter().zip(&is_fresh).map(outcome).collect();
    // Of an account that nobody has there is nothing to remember.
    let accepted = told.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Accepted);
    let accepted: Vec<&Told> = accepted.map(|(told, _)| told).collect();
    let messages: Vec<String> = accepted.iter().filter_map(|told| told.message.clone()).collect();
    // Those that have ended need no name.
    let goes_on = |told: &&&Told| matches!(told.about, About::News | About::Gone);
    let mut named: Vec<_> = accepted.iter().filter(goes_on).filter_map(|told| told.names.clone()).collect();
    named.sort_unstable();
    named.dedup();
    let mut learned = Learned { named, ended: Vec::new() };
    let mut looks = Vec::new();
    for (address, pushed) in found {
        let meaning = meanings[&*address];
        for pushed in pushed {
            looks.push(meaning.look(store, pushed)?);
        }
        learned.ended.extend(meaning.is_ended.then_some(address));
    }
    if !looks.is_empty() {
        system.record_pushes(provider, &messages, looks, learned).await?;
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_together_means_all_that_each_means() {
        let meaning = |about: &[About]| {
            let mut meaning = Meaning::default();
            about.iter().for_each(|about| meaning.add(*about));
            let Meaning { is_told, looks, sweeps, renews, is_ended } = meaning;
            [is_told, looks, sweeps, renews, is_ended].map(u8::from)
        };
        assert_eq!(meaning(&[About::News]), [1, 1, 0, 0, 0]);
        assert_eq!(meaning(&[About::Gone]), [1, 1, 1, 0, 0]);
        assert_eq!(meaning(&[About::Ending]), [0, 0, 0, 1, 0], "nothing has happened in the mailbox");
        assert_eq!(meaning(&[About::Ended]), [0, 1, 1, 1, 1]);
        assert_eq!(meaning(&[About::Missed]), [0, 1, 1, 0, 0]);
        assert_eq!(meaning(&[About::News, About::Ending]), [1, 1, 0, 1, 0]);
        assert_eq!(meaning(&[About::Ended, About::News]), [1, 1, 1, 1, 1]);
    }
}
