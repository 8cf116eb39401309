//! The one writer: a thread that takes waiting units together and answers everybody after the one durable commit.
//!
//! Units rarely fail, and a savepoint for each copies every page that it changes. So a group runs without them first;
//! when a member fails or takes long, all of it is rolled back and run once more, now each in a savepoint of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::error;
use super::reader::{bind, run as run_query};
use super::undo::{Undo, is_stopped};
use crate::unit::{Action, By, Insert, Op, Outcome};
use crate::{Committed, StoreError, Unit, Value};

/// Enough that callers rarely wait for a place, few enough that memory stays bounded.
const WAITING_UNITS: usize = 256;

/// Units in one commit, and rows of all together: the more, the fewer times a hot page is written; but everybody waits
/// for all of them, which should stay about 100 ms.
const GROUP: usize = 64;
const GROUP_ROWS: usize = 8000;
const SMALL_ROWS: usize = 64;

/// Between groups the lock is free for this long, so that commands in other processes get their turn.
const REST: Duration = Duration::from_millis(2);

/// SQLite takes at most 32,766 values in a statement.
const MOST_PARAMETERS: usize = 32_000;

/// Rows in a statement, which is kept prepared: few numbers, so that all of them are.
const STATEMENT_ROWS: [usize; 3] = [100, 10, 1];

type Answer = oneshot::Sender<Result<Committed, StoreError>>;

enum Request {
    Commit(Arc<Unit>, Answer),
    /// What SQLite's `data_version` is for the writer's connection.
    Version(oneshot::Sender<Result<i64, StoreError>>),
}

#[derive(Debug)]
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
}

impl Writer {
    pub fn start(mut connection: Connection) -> Result<Self, StoreError> {
        let undo = Undo::watch(&mut connection).map_err(error)?;
        let (requests, waiting) = mpsc::channel(WAITING_UNITS);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(&connection, &undo, waiting))
            .map_err(|e| StoreError::other(format!("cannot start the writer thread: {e}")))?;
        Ok(Self { requests })
    }

    pub async fn commit(&self, unit: Arc<Unit>) -> Result<Committed, StoreError> {
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

fn run(connection: &Connection, undo: &Undo, mut waiting: mpsc::Receiver<Request>) {
    let mut queue = Queue::default();
    while let Some(group) = queue.next(connection, &mut waiting) {
        commit_group(connection, undo, group);
        std::thread::sleep(REST);
    }
}

/// Units that wait. Small ones overtake large ones: whoever renews a lease or takes a job must not wait for a page of mail.
#[derive(Default)]
struct Queue {
    small: VecDeque<(Arc<Unit>, Answer)>,
    large: VecDeque<(Arc<Unit>, Answer)>,
}

impl Queue {
    /// The units of the next commit, once there are any. `None`: nobody will ever ask again.
    fn next(
        &mut self,
        connection: &Connection,
        waiting: &mut mpsc::Receiver<Request>,
    ) -> Option<Vec<(Arc<Unit>, Answer)>> {
        while self.small.is_empty() && self.large.is_empty() {
            self.take(connection, waiting.blocking_recv()?);
        }
        while self.small.len() + self.large.len() < WAITING_UNITS
            && let Ok(request) = waiting.try_recv()
        {
            self.take(connection, request);
        }
        let mut group: Vec<(Arc<Unit>, Answer)> = self.small.drain(..self.small.len().min(GROUP)).collect();
        let mut rows: usize = group.iter().map(|(unit, _)| unit.rows()).sum();
        while rows < GROUP_ROWS
            && let Some((unit, answer)) = self.large.pop_front()
        {
            rows += unit.rows();
            group.push((unit, answer));
        }
        Some(group)
    }

    fn take(&mut self, connection: &Connection, request: Request) {
        match request {
            Request::Version(answer) => drop(answer.send(version(connection))), // whoever asked may be gone
            Request::Commit(unit, answer) if unit.rows() <= SMALL_ROWS => self.small.push_back((unit, answer)),
            Request::Commit(unit, answer) => self.large.push_back((unit, answer)),
        }
    }
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached("pragma data_version").map_err(error)?;
    statement.query_row([], |row| row.get(0)).map_err(error)
}

fn commit_group(connection: &Connection, undo: &Undo, group: Vec<(Arc<Unit>, Answer)>) {
    let (units, answers): (Vec<Arc<Unit>>, Vec<Answer>) = group.into_iter().unzip();
    let outcomes = match run_group(connection, undo, &units) {
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

type Outcomes = Vec<Result<Committed, StoreError>>;

fn run_group(connection: &Connection, undo: &Undo, units: &[Arc<Unit>]) -> rusqlite::Result<Outcomes> {
    undo.in_memory(connection)?;
    connection.execute_batch("begin immediate")?;
    let outcomes = match run_together(connection, undo, units) {
        Ok(Some(outcomes)) => outcomes,
        Err(e) if !is_stopped(&e) => return Err(e),
        Ok(None) | Err(_) => {
            if !connection.is_autocommit() {
                connection.execute_batch("rollback")?;
            }
            undo.in_file(connection)?;
            connection.execute_batch("begin immediate")?;
            run_apart(connection, undo, units)?
        }
    };
    connection.execute_batch("commit")?;
    Ok(outcomes)
}

/// Nothing if one of them failed; what they changed is still there then.
fn run_together(connection: &Connection, undo: &Undo, units: &[Arc<Unit>]) -> rusqlite::Result<Option<Outcomes>> {
    let mut outcomes = Vec::with_capacity(units.len());
    for unit in units {
        match alive(connection, run_ops(connection, undo, unit))? {
            Ok(committed) => outcomes.push(Ok(committed)),
            Err(_) => return Ok(None),
        }
    }
    undo.stop_nothing();
    let indexed = alive(connection, insert_at_once(connection, units).map_err(UnitError::Sql))?;
    Ok(indexed.is_ok().then_some(outcomes))
}

/// One that fails costs the others nothing.
fn run_apart(connection: &Connection, undo: &Undo, units: &[Arc<Unit>]) -> rusqlite::Result<Outcomes> {
    let mut outcomes = Vec::with_capacity(units.len());
    for unit in units {
        connection.execute_batch("savepoint unit")?;
        let outcome = run_ops(connection, undo, unit).and_then(|committed| {
            insert_at_once(connection, std::slice::from_ref(unit))?;
            Ok(committed)
        });
        let outcome = alive(connection, outcome)?;
        connection.execute_batch(match outcome {
            Ok(_) => "release unit",
            Err(_) => "rollback to unit; release unit",
        })?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// A full disk or a failed write ends the whole transaction by itself: the outer error, and nobody in the group is stored.
fn alive<T>(connection: &Connection, outcome: Result<T, UnitError>) -> rusqlite::Result<Result<T, StoreError>> {
    let aborted = || rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT), None);
    match (outcome, connection.is_autocommit()) {
        (Err(UnitError::Sql(e)), true) => Err(e),
        (_, true) => Err(aborted()),
        (Ok(done), false) => Ok(Ok(done)),
        (Err(UnitError::Sql(e)), false) => Ok(Err(error(e))),
        (Err(UnitError::Precondition(what)), false) => Ok(Err(StoreError::Precondition(what))),
    }
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

fn run_ops(connection: &Connection, undo: &Undo, unit: &Unit) -> Result<Committed, UnitError> {
    let mut outcomes = Vec::with_capacity(unit.ops.len());
    let changed = |rows: usize| Outcome::Changed(rows as u64);
    for Op { action, expect } in &unit.ops {
        undo.statement_begins();
        let outcome = match action {
            Action::Returning { sql, params } => Outcome::Returned(run_query(connection, sql, params)?),
            Action::Statement { sql, params } => {
                let mut statement = connection.prepare_cached(sql)?;
                bind(&mut statement, params)?;
                changed(statement.raw_execute()?)
            }
            // Comes last, with those of the others.
            Action::Insert(insert) if insert.by == By::Group => changed(0),
            Action::Insert(insert) => changed(insert_rows(connection, undo, insert)?),
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

/// Many rows by a statement: each one copies the pages that it changes, in case it fails.
fn insert_rows(connection: &Connection, undo: &Undo, insert: &Insert) -> rusqlite::Result<usize> {
    let mut changed = 0;
    let mut rows = insert.rows.as_slice();
    while !rows.is_empty() {
        let most = if insert.by == By::One { 1 } else { rows.len() };
        let count = STATEMENT_ROWS.into_iter().find(|count| *count <= most).unwrap_or(1);
        let (these, others) = rows.split_at(count);
        let mut statement = connection.prepare_cached(&insert.sqlite_sql(count))?;
        for (n, value) in these.iter().flatten().enumerate() {
            statement.raw_bind_parameter(n + 1, value)?;
        }
        undo.statement_begins();
        changed += statement.raw_execute()?;
        rows = others;
    }
    Ok(changed)
}

/// All the rows of all the units by one statement: the text index is written out whenever another one begins.
fn insert_at_once(connection: &Connection, units: &[Arc<Unit>]) -> rusqlite::Result<()> {
    let inserts = units.iter().flat_map(|unit| &unit.ops).filter_map(|op| match &op.action {
        Action::Insert(insert) if insert.by == By::Group => Some(insert),
        _ => None,
    });
    let mut by_table: BTreeMap<&str, (&Insert, Vec<&Vec<Value>>)> = BTreeMap::new();
    for insert in inserts {
        by_table.entry(&insert.into).or_insert_with(|| (insert, Vec::new())).1.extend(&insert.rows);
    }
    for (insert, rows) in by_table.values() {
        for rows in rows.chunks(MOST_PARAMETERS / insert.columns.len()) {
            let mut statement = connection.prepare(&insert.sqlite_sql(rows.len()))?;
            for (n, value) in rows.iter().copied().flatten().enumerate() {
                statement.raw_bind_parameter(n + 1, value)?;
            }
            statement.raw_execute()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(sql: &str) -> Arc<Unit> {
        let mut unit = Unit::default();
        unit.op(sql, Vec::new());
        Arc::new(unit)
    }

    #[test]
    fn a_vast_statement_is_committed_with_those_of_its_group_but_not_with_one_that_fails() {
        let mut connection = Connection::open_in_memory().unwrap();
        let undo = Undo::watch(&mut connection).unwrap();
        connection.execute_batch("create table t (i integer primary key)").unwrap();
        let vast = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
                    insert into t select i from n";
        let units = [unit("insert into t values (-1)"), unit(vast), unit("insert into t values (7)")];

        let outcomes = run_group(&connection, &undo, &units).unwrap();

        assert!(outcomes[0].is_ok() && outcomes[1].is_ok() && outcomes[2].is_err(), "{outcomes:?}");
        let count: u32 = connection.query_row("select count(*) from t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 300_001);
        let after = run_group(&connection, &undo, &[unit("insert into t values (-2)")]).unwrap();
        assert!(after[0].is_ok());
    }
}
