//! What many ask for at the same time is asked for once.

use std::sync::{Arc, Mutex, PoisonError};

use store::StoreError;
use tokio::sync::{Semaphore, oneshot};

/// Questions on their way at once; while they are, the next ones gather.
const AT_ONCE: usize = 2;

/// Not worth looking through.
const FEW: usize = 16;

/// As many as keep a question well under 50 ms.
pub const MOST: usize = 500;

type Asked<K, V> = (K, oneshot::Sender<Result<V, StoreError>>);

/// Cheap to clone.
#[derive(Debug)]
pub struct Together<K, V> {
    waiting: Arc<Mutex<Vec<Asked<K, V>>>>,
    turns: Arc<Semaphore>,
    /// How much of a question one is.
    weigh: fn(&K) -> usize,
}

impl<K, V> Clone for Together<K, V> {
    fn clone(&self) -> Self {
        Self { waiting: self.waiting.clone(), turns: self.turns.clone(), weigh: self.weigh }
    }
}

impl<K, V> Default for Together<K, V> {
    fn default() -> Self {
        Self::weighing(|_| 1)
    }
}

impl<K, V> Together<K, V> {
    /// For what is of different sizes.
    pub fn weighing(weigh: fn(&K) -> usize) -> Self {
        Self { waiting: Arc::default(), turns: Arc::new(Semaphore::new(AT_ONCE)), weigh }
    }
}

impl<K: Send + 'static, V: Send + 'static> Together<K, V> {
    /// `answer` gets what has gathered and gives as many answers, in the same order.
    pub async fn ask<F>(&self, key: K, answer: impl Fn(Vec<K>) -> F) -> Result<V, StoreError>
    where
        F: Future<Output = Result<Vec<V>, StoreError>> + Send + 'static,
    {
        let (sender, mut answered) = oneshot::channel();
        self.wait((key, sender));
        loop {
            let turn = tokio::select! {
                biased;
                answered = &mut answered => return answered.unwrap_or_else(|_| Err(nobody_answered())),
                turn = self.turns.clone().acquire_owned() => turn.map_err(|_| nobody_answered())?,
            };
            let (keys, senders): (Vec<K>, Vec<_>) = self.gathered().into_iter().unzip();
            if keys.is_empty() {
                // Ours is on its way with somebody else's.
                drop(turn);
                return answered.await.unwrap_or_else(|_| Err(nobody_answered()));
            }
            let answers = answer(keys);
            // A task of its own, for whoever began it may be gone before the others have their answers.
            tokio::spawn(async move {
                let answers = answers.await;
                drop(turn);
                tell(senders, answers);
            });
        }
    }

    fn wait(&self, asked: Asked<K, V>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // While nobody is answered, those who gave up must not add up: there are never more of them than of those who wait.
        if waiting.len() == waiting.capacity() {
            waiting.retain(|(_, sender)| !sender.is_closed());
            let waiting_still = waiting.len();
            waiting.shrink_to(FEW.max(waiting_still * 2));
        }
        waiting.push(asked);
    }

    fn gathered(&self) -> Vec<Asked<K, V>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has gone needs no answer, and must not be given a right that nobody would use.
        waiting.retain(|(_, sender)| !sender.is_closed());
        let mut whole = 0;
        let fits = |(key, _): &&Asked<K, V>| {
            let is_first = whole == 0;
            whole += (self.weigh)(key);
            is_first || whole <= MOST
        };
        let most = waiting.iter().take_while(fits).count();
        waiting.drain(..most).collect()
    }
}

/// Who is gone does not hear it.
fn tell<V>(senders: Vec<oneshot::Sender<Result<V, StoreError>>>, answers: Result<Vec<V>, StoreError>) {
    match answers {
        Ok(answers) => {
            for (sender, answer) in senders.into_iter().zip(answers) {
                let _ = sender.send(Ok(answer));
            }
        }
        Err(e) => {
            for sender in senders {
                let _ = sender.send(Err(e.clone()));
            }
        }
    }
}

fn nobody_answered() -> StoreError {
    StoreError::Unavailable("a question to the database was given up".into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_gathers_is_asked_for_at_once_and_everybody_gets_their_own_answer() {
        let together = Together::<u32, u32>::default();
        let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let answer = |keys: Vec<u32>| {
            let (asked, gate) = (asked.clone(), gate.clone());
            async move {
                asked.fetch_add(1, Ordering::SeqCst);
                let _open = gate.acquire().await;
                Ok(keys.into_iter().map(|key| key * 2).collect())
            }
        };
        let all = futures_util::future::join_all((0..1200).map(|key| together.ask(key, &answer)));
        let open = async { gate.add_permits(AT_ONCE) };
        let (answers, ()) = tokio::join!(all, open);
        let doubled: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(doubled, (0..1200).map(|key| key * 2).collect::<Vec<_>>());
        assert!(asked.load(Ordering::SeqCst) <= 6, "{asked:?} questions for 1,200");
    }

    #[tokio::test]
    async fn what_is_large_is_asked_for_with_little_else() {
        let together = Together::<usize, usize>::weighing(|key| *key);
        let gate = Arc::new(Semaphore::new(0));
        let answer = |keys: Vec<usize>| {
            let gate = gate.clone();
            async move {
                let _open = gate.acquire().await;
                let whole = keys.iter().sum();
                Ok(vec![whole; keys.len()])
            }
        };
        // The first two begin a question each; the others gather behind them.
        let sizes = [1, 1, 300, 200, 1, 400, 9000, 100];
        let all = futures_util::future::join_all(sizes.map(|size| together.ask(size, &answer)));
        let (answers, ()) = tokio::join!(all, async { gate.add_permits(AT_ONCE) });
        let together: Vec<usize> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(together, [1, 1, 500, 500, 401, 401, 9000, 100]);
    }

    #[tokio::test]
    async fn who_gives_up_takes_nobody_along_and_an_error_is_told_to_all() {
        let together = Together::<u32, u32>::default();
        let gate = Arc::new(Semaphore::new(0));
        let answer = |keys: Vec<u32>| {
            let gate = gate.clone();
            async move {
                let _open = gate.acquire().await;
                if keys.contains(&7) { Err(StoreError::Busy(1)) } else { Ok(keys) }
            }
        };
        // The first ones begin a question each; the others gather behind them.
        let mut first: Vec<_> = (0..2).map(|key| Box::pin(together.ask(key, &answer))).collect();
        for asked in &mut first {
            assert!(futures_util::poll!(asked).is_pending());
        }
        let mut later: Vec<_> = [5, 7].map(|key| Box::pin(together.ask(key, &answer))).into();
        for asked in &mut later {
            assert!(futures_util::poll!(asked).is_pending());
        }
        drop(first.remove(0));
        gate.add_permits(AT_ONCE);
        assert_eq!(first.remove(0).await.unwrap(), 1);
        for asked in later {
            assert!(matches!(asked.await, Err(StoreError::Busy(1))));
        }
    }

    #[tokio::test]
    async fn those_who_gave_up_are_forgotten_however_many_there_were_once() {
        let together = Together::<u32, u32>::default();
        let answer = |_| std::future::pending();
        let mut many = Vec::new();
        for key in 0..200 {
            many.push(Box::pin(together.ask(key, answer)));
            assert!(futures_util::poll!(many.last_mut().unwrap()).is_pending());
        }
        drop(many);

        for key in 0..300 {
            assert!(futures_util::poll!(Box::pin(together.ask(key, answer))).is_pending());
        }
        assert!(together.waiting.lock().unwrap().len() <= FEW);
    }
}
