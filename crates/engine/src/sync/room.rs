//! Memory for messages that are under way: a share of what all mailboxes have together, which a job has until it ends.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use domain::ConnectorError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{BYTES_IN_FLIGHT, PERMIT_BYTES};

/// How often somebody who waits is heard of.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// A call that waits for longer gives its place to others, for calls have a deadline.
const SIGNS: u32 = 60;

/// When it is tried again.
const LATER: Duration = Duration::from_secs(2);

pub struct Room {
    memory: Arc<Semaphore>,
    /// To be kept until the messages are stored.
    pub taken: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub fn new(memory: Arc<Semaphore>) -> Self {
        Self { memory, taken: None }
    }

    /// Whoever has nothing yet waits for its turn, and gives a sign of life now and then.
    pub async fn make(&mut self, bytes: u64, sign_of_life: impl Fn()) -> Result<(), ConnectorError> {
        let permits = u32::try_from(bytes.min(BYTES_IN_FLIGHT as u64).div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let taken = match &self.taken {
            // Those who have something and wait for more would wait for each other.
            Some(_) => self.memory.clone().try_acquire_many_owned(permits).ok(),
            None => self.wait(permits, sign_of_life).await,
        };
        let taken = taken.ok_or(ConnectorError::NotYet(LATER))?;
        match &mut self.taken {
            Some(before) => before.merge(taken),
            None => self.taken = Some(taken),
        }
        Ok(())
    }

    /// What was expected and did not come.
    pub fn give_back(&mut self, bytes: u64) {
        let Some(mut taken) = self.taken.take() else { return };
        let surplus = usize::try_from(bytes / PERMIT_BYTES).unwrap_or(usize::MAX);
        drop(taken.split(surplus.min(taken.num_permits())));
        self.taken = (taken.num_permits() > 0).then_some(taken);
    }

    async fn wait(&self, permits: u32, sign_of_life: impl Fn()) -> Option<OwnedSemaphorePermit> {
        let mut taken = pin!(self.memory.clone().acquire_many_owned(permits));
        for _ in 0..SIGNS {
            match tokio::time::timeout(SIGN_OF_LIFE, &mut taken).await {
                Ok(taken) => return taken.ok(),
                // Others are at it, which is progress enough; a place in the line is not given up.
                Err(_) => sign_of_life(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_has_something_does_not_wait_for_more() {
        let memory = Arc::new(Semaphore::new(10));
        let mut room = Room::new(memory.clone());
        room.make(8 * PERMIT_BYTES, || ()).await.unwrap();
        assert_eq!(room.make(3 * PERMIT_BYTES, || ()).await, Err(ConnectorError::NotYet(LATER)));

        room.give_back(5 * PERMIT_BYTES);
        room.make(3 * PERMIT_BYTES, || ()).await.unwrap();
        assert_eq!(memory.available_permits(), 4);
        room.give_back(u64::MAX);
        assert_eq!(memory.available_permits(), 10, "no more than it has");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_nothing_waits_in_the_line_and_gives_up_at_last() {
        let memory = Arc::new(Semaphore::new(10));
        let mut first = Room::new(memory.clone());
        first.make(8 * PERMIT_BYTES, || ()).await.unwrap();
        let mut second = Room::new(memory.clone());
        assert_eq!(second.make(3 * PERMIT_BYTES, || ()).await, Err(ConnectorError::NotYet(LATER)));

        let (made, ()) = tokio::join!(second.make(3 * PERMIT_BYTES, || ()), async {
            tokio::time::sleep(SIGN_OF_LIFE * 2).await;
            first.give_back(PERMIT_BYTES);
        });
        assert_eq!(made, Ok(()));
    }
}
