//! The one writer: a thread that takes waiting units together, runs each in a savepoint, and answers everybody after
//! the one durable commit.

use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::error;
use super::reader::{bind, run as run_query};
use crate::unit::{Action, Insert, Op, Outcome};
use crate::{Committed, StoreError, Unit};

/// Enough that callers rarely wait for a place, few enough that memory stays bounded.
const WAITING_UNITS: usize = 256;

/// Units in one commit: a member that fails costs the others nothing, but a group should stay well under 50 ms.
const GROUP: usize = 64;

/// A unit with more rows than this is committed alone: in a group it needs a savepoint, which copies every page that it
/// changes, and that costs more than the fsync it saves.
const HEAVY_ROWS: usize = 64;

/// Between groups the lock is free for this long, so that commands in other processes get their turn.
const REST: Duration = Duration::from_millis(2);

/// SQLite takes at most 32,766 values in a statement.
const MOST_PARAMETERS: usize = 32_000;

type Answer = oneshot::Sender<Result<Committed, StoreError>>;

enum Request {
    Commit(Unit, Answer),
    /// What SQLite's `data_version` is for the writer's connection.
    Version(oneshot::Sender<Result<i64, StoreError>>),
}

#[derive(Debug)]
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
}

impl Writer {
    pub fn start(connection: Connection) -> Result<Self, StoreError> {
        let (requests, waiting) = mpsc::channel(WAITING_UNITS);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(&connection, waiting))
            .map_err(|e| StoreError::other(format!("cannot start the writer thread: {e}")))?;
        Ok(Self { requests })
    }

    pub async fn commit(&self, unit: Unit) -> Result<Committed, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Commit(unit, answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    /// Differs from the last answer when others have committed since; what this writer commits does not change it.
    pub async fn version(&self) -> Result<i64, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Version(answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

fn stopped() -> StoreError {
    StoreError::other("the database writer has stopped")
}

fn run(connection: &Connection, mut waiting: mpsc::Receiver<Request>) {
    let mut next = None;
    while let Some(first) = next.take().or_else(|| waiting.blocking_recv()) {
        let mut group = match first {
            Request::Commit(unit, answer) => vec![(unit, answer)],
            Request::Version(answer) => {
                let _ = answer.send(version(connection)); // whoever asked may be gone
                continue;
            }
        };
        while next.is_none()
            && group.len() < GROUP
            && group[0].0.rows() <= HEAVY_ROWS
            && let Ok(request) = waiting.try_recv()
        {
            match request {
                Request::Commit(unit, answer) if unit.rows() <= HEAVY_ROWS => group.push((unit, answer)),
                other => next = Some(other),
            }
        }
        commit_group(connection, group);
        std::thread::sleep(REST);
    }
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached("pragma data_version").map_err(error)?;
    statement.query_row([], |row| row.get(0)).map_err(error)
}

fn commit_group(connection: &Connection, group: Vec<(Unit, Answer)>) {
    let (units, answers): (Vec<Unit>, Vec<Answer>) = group.into_iter().unzip();
    let outcomes = match run_group(connection, units) {
        Ok(outcomes) => outcomes,
        Err(e) => {
            if !connection.is_autocommit() {
                // The commit did not happen; what is left to fail here is already being reported.
                let _ = connection.execute_batch("rollback");
            }
            let failure = error(e);
            answers.iter().map(|_| Err(failure.clone())).collect()
        }
    };
    for (answer, outcome) in answers.into_iter().zip(outcomes) {
        // A caller that went away does not undo what was committed.
        let _ = answer.send(outcome);
    }
}

fn run_group(connection: &Connection, units: Vec<Unit>) -> rusqlite::Result<Vec<Result<Committed, StoreError>>> {
    connection.execute_batch("begin immediate")?;
    let mut outcomes = Vec::with_capacity(units.len());
    // A unit alone needs no savepoint of its own, which would copy every page that it changes.
    let is_alone = units.len() == 1;
    for unit in units {
        if !is_alone {
            connection.execute_batch("savepoint unit")?;
        }
        let outcome = run_unit(connection, unit);
        if connection.is_autocommit() {
            // A full disk or a failed write ends the whole transaction by itself; nobody in the group is stored.
            return Err(match outcome {
                Err(UnitError::Sql(e)) => e,
                _ => rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT), None),
            });
        }
        match (&outcome, is_alone) {
            (Ok(_), true) => {}
            (Ok(_), false) => connection.execute_batch("release unit")?,
            (Err(_), true) => connection.execute_batch("rollback")?,
            (Err(_), false) => connection.execute_batch("rollback to unit; release unit")?,
        }
        outcomes.push(outcome.map_err(|e| match e {
            UnitError::Sql(e) => error(e),
            UnitError::Precondition(what) => StoreError::Precondition(what),
        }));
    }
    if !connection.is_autocommit() {
        connection.execute_batch("commit")?;
    }
    Ok(outcomes)
}

enum UnitError {
    Sql(rusqlite::Error),
    Precondition(&'static str),
}

impl From<rusqlite::Error> for UnitError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sql(e)
    }
}

fn run_unit(connection: &Connection, unit: Unit) -> Result<Committed, UnitError> {
    let mut outcomes = Vec::with_capacity(unit.ops.len());
    let changed = |rows: usize| Outcome::Changed(rows as u64);
    for Op { action, expect } in unit.ops {
        let outcome = match action {
            Action::Returning { sql, params } => Outcome::Returned(run_query(connection, &sql, &params)?),
            Action::Statement { sql, params } => {
                let mut statement = connection.prepare_cached(&sql)?;
                bind(&mut statement, &params)?;
                changed(statement.raw_execute()?)
            }
            Action::Insert(insert) if insert.at_once => changed(insert_at_once(connection, &insert)?),
            Action::Insert(insert) => changed(insert_row_by_row(connection, &insert)?),
        };
        if let Some(expect) = expect
            && expect.rows != outcome.rows()
        {
            return Err(UnitError::Precondition(expect.or_else));
        }
        outcomes.push(outcome);
    }
    Ok(Committed { outcomes })
}

fn insert_row_by_row(connection: &Connection, insert: &Insert) -> rusqlite::Result<usize> {
    let mut statement = connection.prepare_cached(&insert.sqlite_sql(1))?;
    let mut changed = 0;
    for row in &insert.rows {
        for (n, value) in row.iter().enumerate() {
            statement.raw_bind_parameter(n + 1, value)?;
        }
        changed += statement.raw_execute()?;
    }
    Ok(changed)
}

fn insert_at_once(connection: &Connection, insert: &Insert) -> rusqlite::Result<usize> {
    let mut changed = 0;
    for rows in insert.rows.chunks(MOST_PARAMETERS / insert.columns.len()) {
        let mut statement = connection.prepare(&insert.sqlite_sql(rows.len()))?;
        for (n, value) in rows.iter().flatten().enumerate() {
            statement.raw_bind_parameter(n + 1, value)?;
        }
        changed += statement.raw_execute()?;
    }
    Ok(changed)
}
