//! A batcher: combines the look-ups of many concurrent callers into one query.

use std::sync::{Arc, Mutex, PoisonError};

use store::StoreError;
use tokio::sync::{Semaphore, oneshot};

/// Queries that run at the same time; while they do, further requests collect for the next one.
const CONCURRENT_BATCHES: usize = 2;

/// Waiting requests below which abandoned ones are not worth removing.
const MIN_QUEUE_CAPACITY: usize = 16;

/// The weight of one batch: as many as keep a query well under 50 ms.
pub const MAX_BATCH_WEIGHT: usize = 500;

type BatchRequest<K, V> = (K, oneshot::Sender<Result<V, StoreError>>);

/// Collects requests by key and answers them in batches. Cheap to clone; clones share their queue.
#[derive(Debug)]
pub struct Batcher<K, V> {
    waiting: Arc<Mutex<Vec<BatchRequest<K, V>>>>,
    batch_permits: Arc<Semaphore>,
    /// The weight of a key, counted against [`MAX_BATCH_WEIGHT`].
    weigh: fn(&K) -> usize,
}

impl<K, V> Clone for Batcher<K, V> {
    fn clone(&self) -> Self {
        Self { waiting: self.waiting.clone(), batch_permits: self.batch_permits.clone(), weigh: self.weigh }
    }
}

impl<K, V> Default for Batcher<K, V> {
    fn default() -> Self {
        Self::with_weights(|_| 1)
    }
}

impl<K, V> Batcher<K, V> {
    /// Creates a batcher whose keys differ in weight.
    pub fn with_weights(weigh: fn(&K) -> usize) -> Self {
        Self { waiting: Arc::default(), batch_permits: Arc::new(Semaphore::new(CONCURRENT_BATCHES)), weigh }
    }
}

impl<K: Send + 'static, V: Send + 'static> Batcher<K, V> {
    /// Returns the answer for `key`. `query` receives the keys of a batch and returns as many answers, in the same
    /// order.
    pub async fn get<F>(&self, key: K, query: impl Fn(Vec<K>) -> F) -> Result<V, StoreError>
    where
        F: Future<Output = Result<Vec<V>, StoreError>> + Send + 'static,
    {
        let (sender, mut answered) = oneshot::channel();
        self.push((key, sender));
        loop {
            let turn = tokio::select! {
                biased;
                answered = &mut answered => return answered.unwrap_or_else(|_| Err(abandoned())),
                turn = self.batch_permits.clone().acquire_owned() => turn.map_err(|_| abandoned())?,
            };
            let (keys, senders): (Vec<K>, Vec<_>) = self.take_batch().into_iter().unzip();
            if keys.is_empty() {
                // Another caller's batch includes ours.
                drop(turn);
                return answered.await.unwrap_or_else(|_| Err(abandoned()));
            }
            let answers = query(keys);
            // A separate task, because the caller that started the batch may be cancelled before the others have their
            // answers.
            tokio::spawn(async move {
                let answers = answers.await;
                drop(turn);
                send_answers(senders, answers);
            });
        }
    }

    fn push(&self, request: BatchRequest<K, V>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Abandoned requests must not add up while no batch completes: there are never more of them than of live ones.
        if waiting.len() == waiting.capacity() {
            waiting.retain(|(_, sender)| !sender.is_closed());
            let waiting_still = waiting.len();
            waiting.shrink_to(MIN_QUEUE_CAPACITY.max(waiting_still * 2));
        }
        waiting.push(request);
    }

    fn take_batch(&self) -> Vec<BatchRequest<K, V>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // A cancelled caller needs no answer, and must not be granted a lease that would go unused.
        waiting.retain(|(_, sender)| !sender.is_closed());
        let mut weight = 0;
        let fitting = waiting.iter().take_while(|(key, _)| {
            let is_first = weight == 0;
            weight += (self.weigh)(key);
            is_first || weight <= MAX_BATCH_WEIGHT
        });
        let count = fitting.count();
        waiting.drain(..count).collect()
    }
}

/// Sends each caller its answer; cancelled callers are skipped.
fn send_answers<V>(senders: Vec<oneshot::Sender<Result<V, StoreError>>>, answers: Result<Vec<V>, StoreError>) {
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

fn abandoned() -> StoreError {
    StoreError::Unavailable("a batched query was abandoned".into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn concurrent_requests_share_few_queries() {
        let batcher = Batcher::<u32, u32>::default();
        let (queries, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let query = |keys: Vec<u32>| {
            let (queries, gate) = (queries.clone(), gate.clone());
            async move {
                queries.fetch_add(1, Ordering::SeqCst);
                let _open = gate.acquire().await;
                Ok(keys.into_iter().map(|key| key * 2).collect())
            }
        };
        let all = futures_util::future::join_all((0..1200).map(|key| batcher.get(key, &query)));
        let open = async { gate.add_permits(CONCURRENT_BATCHES) };
        let (answers, ()) = tokio::join!(all, open);
        let doubled: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(doubled, (0..1200).map(|key| key * 2).collect::<Vec<_>>());
        assert!(queries.load(Ordering::SeqCst) <= 6, "{queries:?} queries for 1,200");
    }

    #[tokio::test]
    async fn batch_weight_is_bounded() {
        let batcher = Batcher::<usize, usize>::with_weights(|key| *key);
        let gate = Arc::new(Semaphore::new(0));
        let query = |keys: Vec<usize>| {
            let gate = gate.clone();
            async move {
                let _open = gate.acquire().await;
                let whole = keys.iter().sum();
                Ok(vec![whole; keys.len()])
            }
        };
        // The first two start a batch each; the others wait behind them.
        let sizes = [1, 1, 300, 200, 1, 400, 9000, 100];
        let all = futures_util::future::join_all(sizes.map(|size| batcher.get(size, &query)));
        let (answers, ()) = tokio::join!(all, async { gate.add_permits(CONCURRENT_BATCHES) });
        let weights: Vec<usize> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(weights, [1, 1, 500, 500, 401, 401, 9000, 100]);
    }

    #[tokio::test]
    async fn cancelled_caller_does_not_cancel_its_batch() {
        let batcher = Batcher::<u32, u32>::default();
        let gate = Arc::new(Semaphore::new(0));
        let query = |keys: Vec<u32>| {
            let gate = gate.clone();
            async move {
                let _open = gate.acquire().await;
                if keys.contains(&7) { Err(StoreError::Busy(1)) } else { Ok(keys) }
            }
        };
        // The first ones start a batch each; the others wait behind them.
        let mut first: Vec<_> = (0..2).map(|key| Box::pin(batcher.get(key, &query))).collect();
        for request in &mut first {
            assert!(futures_util::poll!(request).is_pending());
        }
        let mut later: Vec<_> = [5, 7].map(|key| Box::pin(batcher.get(key, &query))).into();
        for request in &mut later {
            assert!(futures_util::poll!(request).is_pending());
        }
        drop(first.remove(0));
        gate.add_permits(CONCURRENT_BATCHES);
        assert_eq!(first.remove(0).await.unwrap(), 1);
        for request in later {
            assert!(matches!(request.await, Err(StoreError::Busy(1))));
        }
    }

    #[tokio::test]
    async fn abandoned_requests_do_not_add_up() {
        let batcher = Batcher::<u32, u32>::default();
        let mut many = Vec::new();
        for key in 0..200 {
            many.push(Box::pin(batcher.get(key, |_| std::future::pending())));
            assert!(futures_util::poll!(many.last_mut().unwrap()).is_pending());
        }
        drop(many);

        for key in 0..300 {
            assert!(futures_util::poll!(Box::pin(batcher.get(key, |_| std::future::pending()))).is_pending());
        }
        assert!(batcher.waiting.lock().unwrap().len() <= MIN_QUEUE_CAPACITY);
    }
}
