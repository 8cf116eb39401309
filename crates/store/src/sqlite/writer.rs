//! The one writer: a thread with group commit. It takes waiting units together and answers all callers after one durable
//! commit.
//!
//! Units rarely fail, and a savepoint for each copies every page that it changes. So a group runs without them first;
//! when a member fails or takes long, all of it is rolled back and run once more, now each in a savepoint of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::reader::{bind, run as run_query};
use super::statement_journal::{StatementJournal, is_interrupted};
use super::{OVERWRITE_IN_PAGES, OVERWRITE_PAGES, error};
use crate::unit::{Insert, InsertBatching, Op, OpAction, OpOutcome};
use crate::{CommitOutcome, Precondition, StoreError, Unit, Value};

/// Enough that callers rarely wait for the queue, few enough that memory stays bounded.
const MAX_QUEUED_UNITS: usize = 256;

/// Units in one commit, and rows of all together: the more, the fewer times a hot page is written; but every caller waits
/// for all of them, which should stay about 100 ms.
const MAX_GROUP_UNITS: usize = 64;
const MAX_GROUP_ROWS: usize = 8000;
const MAX_SMALL_UNIT_ROWS: usize = 64;

/// Between groups the lock is free for this long, so that other processes can take it.
const PAUSE_BETWEEN_GROUPS: Duration = Duration::from_millis(2);

/// SQLite takes at most 32,766 values in a statement.
const MAX_STATEMENT_PARAMETERS: usize = 32_000;

/// Numbers of rows for which a statement is kept prepared: few, so that all of them are.
const ROWS_PER_STATEMENT: [usize; 3] = [100, 10, 1];

type CommitReply = oneshot::Sender<Result<CommitOutcome, StoreError>>;

enum WriterRequest {
    Commit(Arc<Unit>, CommitReply),
    /// Asks for SQLite's `data_version` of the writer's connection.
    DataVersion(oneshot::Sender<Result<i64, StoreError>>),
}

#[derive(Debug)]
pub(super) struct Writer {
    requests: mpsc::Sender<WriterRequest>,
}

impl Writer {
    pub fn start(mut connection: Connection) -> Result<Self, StoreError> {
        let journal = StatementJournal::install(&mut connection).map_err(error)?;
        let (requests, waiting) = mpsc::channel(MAX_QUEUED_UNITS);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(&connection, &journal, waiting))
            .map_err(|e| StoreError::other(format!("cannot start the writer thread: {e}")))?;
        Ok(Self { requests })
    }

    pub async fn commit(&self, unit: Arc<Unit>) -> Result<CommitOutcome, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(WriterRequest::Commit(unit, answer)).await.map_err(|_| writer_stopped())?;
        answered.await.map_err(|_| writer_stopped())?
    }

    /// Returns a number that differs from the last one when other processes have committed since; what this writer commits
    /// does not change it.
    pub async fn data_version(&self) -> Result<i64, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(WriterRequest::DataVersion(answer)).await.map_err(|_| writer_stopped())?;
        answered.await.map_err(|_| writer_stopped())?
    }
}

fn writer_stopped() -> StoreError {
    StoreError::other("the database writer has stopped")
}

fn run(connection: &Connection, journal: &StatementJournal, mut waiting: mpsc::Receiver<WriterRequest>) {
    let mut queue = WriteQueue::default();
    while let Some(group) = queue.next(connection, &mut waiting) {
        commit_group(connection, journal, group);
        std::thread::sleep(PAUSE_BETWEEN_GROUPS);
    }
}

/// Units that wait. Small ones overtake large ones: a renewed lease or a claimed job must not wait for a page of mail.
#[derive(Default)]
struct WriteQueue {
    small: VecDeque<(Arc<Unit>, CommitReply)>,
    large: VecDeque<(Arc<Unit>, CommitReply)>,
}

impl WriteQueue {
    /// Waits for units and returns those of the next commit. `None`: the store was dropped.
    fn next(
        &mut self,
        connection: &Connection,
        waiting: &mut mpsc::Receiver<WriterRequest>,
    ) -> Option<Vec<(Arc<Unit>, CommitReply)>> {
        while self.small.is_empty() && self.large.is_empty() {
            self.take(connection, waiting.blocking_recv()?);
        }
        while self.small.len() + self.large.len() < MAX_QUEUED_UNITS
            && let Ok(request) = waiting.try_recv()
        {
            self.take(connection, request);
        }
        let mut group: Vec<(Arc<Unit>, CommitReply)> =
            self.small.drain(..self.small.len().min(MAX_GROUP_UNITS)).collect();
        let mut rows: usize = group.iter().map(|(unit, _)| unit.rows()).sum();
        while rows < MAX_GROUP_ROWS
            && let Some((unit, answer)) = self.large.pop_front()
        {
            rows += unit.rows();
            group.push((unit, answer));
        }
        Some(group)
    }

    fn take(&mut self, connection: &Connection, request: WriterRequest) {
        match request {
            WriterRequest::DataVersion(answer) => drop(answer.send(data_version(connection))), // the caller may be gone
            WriterRequest::Commit(unit, answer) if unit.rows() <= MAX_SMALL_UNIT_ROWS => {
                self.small.push_back((unit, answer));
            }
            WriterRequest::Commit(unit, answer) => self.large.push_back((unit, answer)),
        }
    }
}

fn data_version(connection: &Connection) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached("pragma data_version").map_err(error)?;
    statement.query_row([], |row| row.get(0)).map_err(error)
}

fn commit_group(connection: &Connection, journal: &StatementJournal, group: Vec<(Arc<Unit>, CommitReply)>) {
    let (units, answers): (Vec<Arc<Unit>>, Vec<CommitReply>) = group.into_iter().unzip();
    let outcomes = match run_group(connection, journal, &units) {
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

type GroupOutcomes = Vec<Result<CommitOutcome, StoreError>>;

fn run_group(
    connection: &Connection,
    journal: &StatementJournal,
    units: &[Arc<Unit>],
) -> rusqlite::Result<GroupOutcomes> {
    if !units.iter().any(|unit| unit.is_erasing) {
        return run_transaction(connection, journal, units);
    }
    connection.pragma_update(None, "secure_delete", OVERWRITE_PAGES)?;
    let outcomes = run_transaction(connection, journal, units);
    connection.pragma_update(None, "secure_delete", OVERWRITE_IN_PAGES)?;
    outcomes
}

fn run_transaction(
    connection: &Connection,
    journal: &StatementJournal,
    units: &[Arc<Unit>],
) -> rusqlite::Result<GroupOutcomes> {
    journal.keep_in_memory(connection)?;
    connection.execute_batch("begin immediate")?;
    let outcomes = match run_together(connection, journal, units) {
        Ok(Some(outcomes)) => outcomes,
        Err(e) if !is_interrupted(&e) => return Err(e),
        Ok(None) | Err(_) => {
            if !connection.is_autocommit() {
                connection.execute_batch("rollback")?;
            }
            journal.keep_in_file(connection)?;
            connection.execute_batch("begin immediate")?;
            run_in_savepoints(connection, journal, units)?
        }
    };
    connection.execute_batch("commit")?;
    Ok(outcomes)
}

/// Runs the units without savepoints. Returns `None` if one of them failed; what they changed is still there then.
fn run_together(
    connection: &Connection,
    journal: &StatementJournal,
    units: &[Arc<Unit>],
) -> rusqlite::Result<Option<GroupOutcomes>> {
    let mut outcomes = Vec::with_capacity(units.len());
    for unit in units {
        match unless_aborted(connection, run_ops(connection, journal, unit))? {
            Ok(committed) => outcomes.push(Ok(committed)),
            Err(_) => return Ok(None),
        }
    }
    journal.lift_limit();
    let indexed = unless_aborted(connection, insert_grouped(connection, units).map_err(UnitError::Sql))?;
    Ok(indexed.is_ok().then_some(outcomes))
}

/// Runs each unit in a savepoint, so that one that fails does not affect the others.
fn run_in_savepoints(
    connection: &Connection,
    journal: &StatementJournal,
    units: &[Arc<Unit>],
) -> rusqlite::Result<GroupOutcomes> {
    let mut outcomes = Vec::with_capacity(units.len());
    for unit in units {
        connection.execute_batch("savepoint unit")?;
        let outcome = run_ops(connection, journal, unit).and_then(|committed| {
            insert_grouped(connection, std::slice::from_ref(unit))?;
            Ok(committed)
        });
        let outcome = unless_aborted(connection, outcome)?;
        connection.execute_batch(match outcome {
            Ok(_) => "release unit",
            Err(_) => "rollback to unit; release unit",
        })?;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Checks that the transaction is still open. A full disk or a failed write ends it: then the outer error is returned, and
/// no unit of the group is stored.
fn unless_aborted<T>(
    connection: &Connection,
    outcome: Result<T, UnitError>,
) -> rusqlite::Result<Result<T, StoreError>> {
    if connection.is_autocommit() {
        let aborted = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT);
        return Err(match outcome {
            Err(UnitError::Sql(e)) => e,
            _ => rusqlite::Error::SqliteFailure(aborted, None),
        });
    }
    Ok(outcome.map_err(|e| match e {
        UnitError::Sql(e) => error(e),
        UnitError::Precondition(failed) => StoreError::Precondition(failed),
    }))
}

enum UnitError {
    Sql(rusqlite::Error),
    Precondition(Precondition),
}

impl From<rusqlite::Error> for UnitError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sql(e)
    }
}

fn run_ops(connection: &Connection, journal: &StatementJournal, unit: &Unit) -> Result<CommitOutcome, UnitError> {
    let mut outcomes = Vec::with_capacity(unit.ops.len());
    for Op { action, expect } in &unit.ops {
        journal.begin_statement();
        let outcome = match action {
            OpAction::Returning { sql, params } => OpOutcome::Returned(run_query(connection, sql, params)?),
            OpAction::Statement { sql, params } => {
                let mut statement = connection.prepare_cached(sql)?;
                bind(&mut statement, params)?;
                OpOutcome::Changed(statement.raw_execute()? as u64)
            }
            // Inserted last, with the rows of the other units.
            OpAction::Insert(insert) if insert.batching == InsertBatching::Group => OpOutcome::Changed(0),
            OpAction::Insert(insert) => OpOutcome::Changed(insert_rows(connection, journal, insert)? as u64),
        };
        if let Some(expect) = expect
            && expect.rows != outcome.rows()
        {
            return Err(UnitError::Precondition(expect.or_else));
        }
        outcomes.push(outcome);
    }
    Ok(CommitOutcome { outcomes })
}

/// Inserts many rows by a statement: each statement copies the pages that it changes, in case it fails.
fn insert_rows(connection: &Connection, journal: &StatementJournal, insert: &Insert) -> rusqlite::Result<usize> {
    let mut changed = 0;
    let mut rows = insert.rows.as_slice();
    while !rows.is_empty() {
        let most = if insert.batching == InsertBatching::One { 1 } else { rows.len() };
        let count = ROWS_PER_STATEMENT.into_iter().find(|count| *count <= most).unwrap_or(1);
        let (these, others) = rows.split_at(count);
        let mut statement = connection.prepare_cached(&insert.sqlite_sql(count))?;
        for (n, value) in these.iter().flatten().enumerate() {
            statement.raw_bind_parameter(n + 1, value)?;
        }
        journal.begin_statement();
        changed += statement.raw_execute()?;
        rows = others;
    }
    Ok(changed)
}

/// Inserts the grouped rows of all units by one statement: the text index is written out whenever another one begins.
fn insert_grouped(connection: &Connection, units: &[Arc<Unit>]) -> rusqlite::Result<()> {
    let inserts = units.iter().flat_map(|unit| &unit.ops).filter_map(|op| match &op.action {
        OpAction::Insert(insert) if insert.batching == InsertBatching::Group => Some(insert),
        _ => None,
    });
    let mut by_table: BTreeMap<&str, (&Insert, Vec<&Vec<Value>>)> = BTreeMap::new();
    for insert in inserts {
        by_table.entry(&insert.into).or_insert_with(|| (insert, Vec::new())).1.extend(&insert.rows);
    }
    for (insert, rows) in by_table.values() {
        for rows in rows.chunks(MAX_STATEMENT_PARAMETERS / insert.columns.len()) {
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
    fn vast_statement_commits_beside_a_failing_unit() {
        let mut connection = Connection::open_in_memory().unwrap();
        let journal = StatementJournal::install(&mut connection).unwrap();
        connection.execute_batch("create table t (i integer primary key)").unwrap();
        let vast = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
                    insert into t select i from n";
        let units = [unit("insert into t values (-1)"), unit(vast), unit("insert into t values (7)")];

        let outcomes = run_group(&connection, &journal, &units).unwrap();

        assert!(outcomes[0].is_ok() && outcomes[1].is_ok() && outcomes[2].is_err(), "{outcomes:?}");
        let count: u32 = connection.query_row("select count(*) from t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 300_001);
        let after = run_group(&connection, &journal, &[unit("insert into t values (-2)")]).unwrap();
        assert!(after[0].is_ok());
    }
}
