//! Memory for messages that are under way, over all mailboxes, from their fetching until they are committed.
//!
//! Each provider has a part that no other takes; the rest is for who comes first. A provider that is slow keeps for long
//! what it was given, and so has all of the rest before long: the others still have their part.
//!
//! Of what was there before, one batch of a provider stands in the line, and the others wait for that: new mail waits for
//! no more than one of them.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use domain::{ConnectorError, Lane, Provider};
use futures_util::future::{Either, select};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

const BYTES_IN_FLIGHT: u64 = 24 << 20;

/// A part is so large, and nobody asks for more at once.
pub const PART: u64 = 4 << 20;

/// Whose mailboxes are elsewhere, where they may be slow.
const WITH_A_PART: [Provider; 3] = [Provider::Imap, Provider::Gmail, Provider::Outlook];

/// Semaphores count in kilobytes, for they cannot count far.
const PERMIT_BYTES: u64 = 1024;

/// How often somebody who waits is heard of.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// A call that waits for longer gives its place to others, for calls have a deadline.
const SIGNS: u32 = 60;

/// When it is tried again.
const LATER: Duration = Duration::from_secs(2);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Memory {
    parts: Arc<HashMap<Provider, Part>>,
    rest: Arc<Semaphore>,
}

#[derive(Debug, Clone)]
struct Part {
    free: Arc<Semaphore>,
    /// The one of old mail that stands in the line.
    old: Arc<Semaphore>,
}

/// What a job has of it, until it ends.
#[derive(Debug)]
pub struct Room {
    part: Share,
    rest: Share,
    /// What to wait for before one stands in the line.
    before: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

/// Of the part, or of the rest.
type Taken = Either<OwnedSemaphorePermit, OwnedSemaphorePermit>;

impl Default for Memory {
    fn default() -> Self {
        let parts = WITH_A_PART.map(|provider| (provider, Part::new(PART)));
        let rest = permits(BYTES_IN_FLIGHT - parts.len() as u64 * PART);
        Self { parts: Arc::new(HashMap::from(parts)), rest }
    }
}

impl Part {
    fn new(bytes: u64) -> Self {
        Self { free: permits(bytes), old: Arc::new(Semaphore::new(1)) }
    }
}

fn permits(bytes: u64) -> Arc<Semaphore> {
    Arc::new(Semaphore::new((bytes / PERMIT_BYTES) as usize))
}

impl Memory {
    pub fn room(&self, provider: Provider, lane: Lane) -> Room {
        // Who has no part waits for the rest alone.
        let part = self.parts.get(&provider).cloned().unwrap_or_else(|| Part::new(0));
        let share = |free| Share { free, taken: None };
        let before = (lane == Lane::Low).then_some(part.old);
        Room { part: share(part.free), rest: share(self.rest.clone()), before }
    }
}

impl Room {
    /// Whoever has nothing yet waits for its turn, and gives a sign of life now and then.
    pub async fn make(&mut self, bytes: u64, sign_of_life: impl Fn()) -> Result<(), ConnectorError> {
        let permits = bytes.min(PART).div_ceil(PERMIT_BYTES) as u32;
        if !self.has_nothing() {
            // Those who have something and wait for more would wait for each other.
            let is_made = self.part.try_take(permits) || self.rest.try_take(permits);
            return is_made.then_some(()).ok_or(ConnectorError::NotYet(LATER));
        }
        match self.wait(permits, sign_of_life).await {
            Some(Either::Left(taken)) => self.part.taken = Some(taken),
            Some(Either::Right(taken)) => self.rest.taken = Some(taken),
            None => return Err(ConnectorError::NotYet(LATER)),
        }
        Ok(())
    }

    /// What was expected and did not come.
    pub fn give_back(&mut self, bytes: u64) {
        let surplus = usize::try_from(bytes / PERMIT_BYTES).unwrap_or(usize::MAX);
        // What others can use as well goes first.
        let given = self.rest.give_back(surplus);
        self.part.give_back(surplus - given);
    }

    fn has_nothing(&self) -> bool {
        self.part.taken.is_none() && self.rest.taken.is_none()
    }

    async fn wait(&self, permits: u32, sign_of_life: impl Fn()) -> Option<Taken> {
        let mut taken = pin!(self.stand_in_line(permits));
        for _ in 0..SIGNS {
            match tokio::time::timeout(SIGN_OF_LIFE, &mut taken).await {
                Ok(taken) => return taken.ok(),
                // Others are at it, which is progress enough; a place in the line is not given up.
                Err(_) => sign_of_life(),
            }
        }
        None
    }

    /// In both lines; whichever is first counts.
    async fn stand_in_line(&self, permits: u32) -> Result<Taken, AcquireError> {
        let _first = match &self.before {
            Some(before) => Some(before.acquire().await?),
            None => None,
        };
        let part = pin!(self.part.free.clone().acquire_many_owned(permits));
        let rest = pin!(self.rest.free.clone().acquire_many_owned(permits));
        Ok(match select(part, rest).await {
            Either::Left((taken, _)) => Either::Left(taken?),
            Either::Right((taken, _)) => Either::Right(taken?),
        })
    }
}

impl Share {
    fn try_take(&mut self, permits: u32) -> bool {
        let Ok(more) = self.free.clone().try_acquire_many_owned(permits) else { return false };
        match &mut self.taken {
            Some(before) => before.merge(more),
            None => self.taken = Some(more),
        }
        true
    }

    /// How many it had to give.
    fn give_back(&mut self, permits: usize) -> usize {
        let Some(mut taken) = self.taken.take() else { return 0 };
        let given = permits.min(taken.num_permits());
        drop(taken.split(given));
        self.taken = (taken.num_permits() > 0).then_some(taken);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    impl Memory {
        fn free(&self, provider: Provider) -> (usize, usize) {
            let megabytes = |free: &Semaphore| free.available_permits() / 1024;
            (megabytes(&self.parts[&provider].free), megabytes(&self.rest))
        }
    }

    /// Until it would have to wait.
    async fn fill(memory: &Memory, provider: Provider) -> Vec<Room> {
        let mut rooms = Vec::new();
        loop {
            let mut room = memory.room(provider, Lane::Normal);
            if futures_util::poll!(pin!(room.make(PART, || ()))).is_pending() {
                return rooms;
            }
            rooms.push(room);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_something_does_not_wait_for_more() {
        let memory = Memory::default();
        let mut room = memory.room(Provider::Gmail, Lane::Normal);
        room.make(3 * MB, || ()).await.unwrap();
        room.make(4 * MB, || ()).await.unwrap();
        assert_eq!(memory.free(Provider::Gmail), (1, 8), "its part first, then the rest");
        let others = fill(&memory, Provider::Outlook).await;
        assert_eq!((others.len(), memory.free(Provider::Gmail)), (3, (1, 0)));
        assert_eq!(room.make(2 * MB, || ()).await, Err(ConnectorError::NotYet(LATER)));
        room.make(MB, || ()).await.unwrap();

        drop(others);
        room.give_back(5 * MB);
        assert_eq!(memory.free(Provider::Gmail), (1, 12), "what others can use goes first");
        room.give_back(u64::MAX);
        assert_eq!(memory.free(Provider::Gmail), (4, 12), "no more than it has");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_nothing_waits_in_the_line_and_gives_up_at_last() {
        let memory = Memory::default();
        let mut rooms = fill(&memory, Provider::Gmail).await;
        let mut late = memory.room(Provider::Gmail, Lane::Normal);
        assert_eq!(late.make(3 * MB, || ()).await, Err(ConnectorError::NotYet(LATER)));

        // Whichever of its places becomes free: of its part, which is the first room, or of the rest.
        for n in [0, 1] {
            let (made, ()) = tokio::join!(late.make(3 * MB, || ()), async {
                tokio::time::sleep(SIGN_OF_LIFE * 2).await;
                rooms[n].give_back(3 * MB);
            });
            assert_eq!(made, Ok(()));
            late.give_back(3 * MB);
        }
        late.make(3 * MB, || ()).await.unwrap();
        drop((late, rooms));
        assert_eq!(memory.free(Provider::Gmail), (4, 12));
    }

    #[tokio::test(start_paused = true)]
    async fn providers_that_keep_all_they_can_get_leave_another_its_part() {
        let memory = Memory::default();
        let gmail = fill(&memory, Provider::Gmail).await;
        let imap = fill(&memory, Provider::Imap).await;
        let mut lines: Vec<_> = (0..100).map(|_| memory.room(Provider::Gmail, Lane::Normal)).collect();
        let mut lines: Vec<_> = lines.iter_mut().map(|room| Box::pin(room.make(PART, || ()))).collect();
        for waiting in &mut lines {
            assert!(futures_util::poll!(waiting).is_pending());
        }
        assert_eq!((gmail.len(), imap.len()), (4, 1));

        assert_eq!(
            memory.room(Provider::Outlook, Lane::Normal).make(100 * MB, || ()).await,
            Ok(()),
            "whatever it asks for"
        );
        assert_eq!(fill(&memory, Provider::Outlook).await.len(), 1, "and what they all have is what there is");
        assert_eq!(fill(&memory, Provider::Scripted).await.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn new_mail_waits_for_one_batch_of_old_mail_and_not_for_all() {
        let memory = Memory::default();
        let mut full = fill(&memory, Provider::Gmail).await;
        let mut rooms: Vec<_> = (0..50).map(|_| memory.room(Provider::Gmail, Lane::Low)).collect();
        let mut old: Vec<_> = rooms.iter_mut().map(|room| Box::pin(room.make(PART, || ()))).collect();
        let mut begun = async || {
            let mut begun = 0;
            // Those that are over are not asked again.
            let mut left = Vec::new();
            for mut batch in std::mem::take(&mut old) {
                match futures_util::poll!(&mut batch).is_ready() {
                    true => begun += 1,
                    false => left.push(batch),
                }
            }
            old = left;
            begun
        };
        assert_eq!(begun().await, 0);
        let mut room = memory.room(Provider::Gmail, Lane::Normal);
        let mut new = pin!(room.make(PART, || ()));
        assert!(futures_util::poll!(&mut new).is_pending());

        full.pop();
        assert_eq!((begun().await, futures_util::poll!(&mut new).is_pending()), (1, true), "who came first");
        full.pop();
        assert_eq!((begun().await, futures_util::poll!(&mut new).is_ready()), (0, true));
        full.pop();
        assert_eq!((begun().await, begun().await), (1, 0), "and then the next");
    }
}
