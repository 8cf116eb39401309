//! The parts of a process that serves. Each runs until it is told to stop; one that ends before is missed at once, since
//! a process without it looks alive and is not.

use std::collections::HashMap;
use std::fmt::Display;

use tokio::task::{Id, JoinError, JoinSet};

#[derive(Default)]
pub(super) struct Parts {
    tasks: JoinSet<Result<(), String>>,
    names: HashMap<Id, &'static str>,
}

impl Parts {
    pub fn add<E: Display>(&mut self, name: &'static str, part: impl Future<Output = Result<(), E>> + Send + 'static) {
        let task = self.tasks.spawn(async { part.await.map_err(|e| e.to_string()) });
        self.names.insert(task.id(), name);
    }

    /// How the first one ended, though nobody told it to; never, if there are none.
    pub async fn first_to_end(&mut self) -> String {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.tell(ended),
            None => std::future::pending().await,
        }
    }

    /// Waits for those that were told to stop.
    pub async fn finish(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if !matches!(ended, Ok((_, Ok(())))) {
                tracing::error!("{}", self.tell(ended));
            }
        }
    }

    fn tell(&self, ended: Result<(Id, Result<(), String>), JoinError>) -> String {
        let (id, how) = match ended {
            Ok((id, Ok(()))) => (id, "ended by itself".to_owned()),
            Ok((id, Err(e))) => (id, format!("failed: {e}")),
            // With the message of the panic.
            Err(e) => (e.id(), format!("failed: {e}")),
        };
        format!("the {} {how}", self.names.get(&id).copied().unwrap_or("program"))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn a_part_that_ends_panics_or_fails_is_named() {
        block_on(async {
            let mut parts = Parts::default();
            parts.add("web server", pending::<Result<(), Infallible>>());
            parts.add("worker", async { if true { panic!("no such slot") } else { Ok::<(), Infallible>(()) } });
            let told = parts.first_to_end().await;
            assert!(told.starts_with("the worker failed: ") && told.contains("no such slot"), "{told}");

            parts.add("scheduler", ready(Ok::<(), Infallible>(())));
            assert_eq!(parts.first_to_end().await, "the scheduler ended by itself");
            parts.add("metrics server", ready(Err("no more sockets")));
            assert_eq!(parts.first_to_end().await, "the metrics server failed: no more sockets");
        });
    }

    #[test]
    fn nothing_is_missed_while_all_run_and_where_there_are_none() {
        block_on(async {
            let mut running = Parts::default();
            running.add("web server", pending::<Result<(), Infallible>>());
            for mut parts in [running, Parts::default()] {
                let mut missed = std::pin::pin!(parts.first_to_end());
                tokio::task::yield_now().await;
                assert!(matches!(missed.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
            }
        });
    }
}
