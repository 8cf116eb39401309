//! The long-running tasks of a service. Each runs until it is asked to stop; if one exits before, the process ends, since it
//! would look healthy without doing its work.

use std::collections::HashMap;
use std::fmt::Display;

use domain::redact_for_log;
use tokio::task::{Id, JoinError, JoinSet};

#[derive(Default)]
pub(super) struct ServiceTasks {
    tasks: JoinSet<Result<(), String>>,
    names: HashMap<Id, &'static str>,
}

impl ServiceTasks {
    pub fn add<E: Display>(&mut self, name: &'static str, task: impl Future<Output = Result<(), E>> + Send + 'static) {
        let task = self.tasks.spawn(async { task.await.map_err(|e| e.to_string()) });
        self.names.insert(task.id(), name);
    }

    /// Waits until a task exits unexpectedly, and describes how. Waits for ever if there are no tasks.
    pub async fn first_exit(&mut self) -> String {
        match self.tasks.join_next_with_id().await {
            Some(ended) => match self.exit(ended) {
                (name, Ok(())) => format!("the {name} ended unexpectedly"),
                (name, Err(e)) => format!("the {name} failed: {e}"),
            },
            None => std::future::pending().await,
        }
    }

    /// Waits until all tasks have stopped.
    pub async fn finish(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            if let (name, Err(e)) = self.exit(ended) {
                tracing::error!(task = name, error = redact_for_log(&e), "service task failed");
            }
        }
    }

    /// Returns the name of a task, and how it exited.
    fn exit(&self, ended: Result<(Id, Result<(), String>), JoinError>) -> (&'static str, Result<(), String>) {
        let (id, how) = match ended {
            Ok((id, how)) => (id, how),
            // Includes the message of the panic.
            Err(e) => (e.id(), Err(e.to_string())),
        };
        (self.names.get(&id).copied().unwrap_or("program"), how)
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
    fn first_exit_names_the_task() {
        block_on(async {
            let mut tasks = ServiceTasks::default();
            tasks.add("web server", pending::<Result<(), Infallible>>());
            tasks.add("worker", async { if true { panic!("no such slot") } else { Ok::<(), Infallible>(()) } });
            let exit = tasks.first_exit().await;
            assert!(exit.starts_with("the worker failed: ") && exit.contains("no such slot"), "{exit}");

            tasks.add("scheduler", ready(Ok::<(), Infallible>(())));
            assert_eq!(tasks.first_exit().await, "the scheduler ended unexpectedly");
            tasks.add("metrics server", ready(Err("no more sockets")));
            assert_eq!(tasks.first_exit().await, "the metrics server failed: no more sockets");
        });
    }

    #[test]
    fn first_exit_waits_while_all_tasks_run() {
        block_on(async {
            let mut running = ServiceTasks::default();
            running.add("web server", pending::<Result<(), Infallible>>());
            for mut tasks in [running, ServiceTasks::default()] {
                let mut missed = std::pin::pin!(tasks.first_exit());
                tokio::task::yield_now().await;
                assert!(matches!(missed.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
            }
        });
    }
}
