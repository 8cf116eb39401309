//! SQLite's statement journal: copies of the pages that a statement changes, in case it fails half-way. It is kept in
//! memory, which is fast. A very long statement would fill the memory: it is interrupted, and run again with its journal in
//! a file.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{Connection, ErrorCode};

/// Steps of a statement between two calls of SQLite's progress handler, counted over all its runs; a row costs some dozens.
const PROGRESS_INTERVAL_STEPS: i32 = 20_000;

/// With so many calls a run of a statement has had 200,000 steps at least.
const MAX_PROGRESS_CALLS: u32 = 11;

const UNLIMITED_CALLS: u32 = u32::MAX / 2;

#[derive(Debug)]
pub(super) struct StatementJournal {
    /// Counts down.
    calls_left: Arc<AtomicU32>,
    call_limit: Cell<u32>,
}

impl StatementJournal {
    pub fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let calls_left = Arc::new(AtomicU32::new(UNLIMITED_CALLS));
        let count = calls_left.clone();
        connection
            .progress_handler(PROGRESS_INTERVAL_STEPS, Some(move || count.fetch_sub(1, Ordering::Relaxed) == 0))?;
        Ok(Self { calls_left, call_limit: Cell::new(UNLIMITED_CALLS) })
    }

    /// Keeps the journal in memory and limits statements. To be called before a transaction.
    pub fn keep_in_memory(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.call_limit.set(MAX_PROGRESS_CALLS);
        connection.pragma_update(None, "temp_store", "memory")
    }

    /// Keeps the journal in a file, where statements need no limit. To be called before a transaction.
    pub fn keep_in_file(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.lift_limit();
        connection.pragma_update(None, "temp_store", "file")
    }

    /// Lets the following statements run however long they take.
    pub fn lift_limit(&self) {
        self.call_limit.set(UNLIMITED_CALLS);
        self.begin_statement();
    }

    pub fn begin_statement(&self) {
        self.calls_left.store(self.call_limit.get(), Ordering::Relaxed);
    }
}

pub(super) fn is_interrupted(e: &rusqlite::Error) -> bool {
    e.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(rows: u32) -> String {
        format!(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows}) insert into t select i from n"
        )
    }

    fn replace_rows(connection: &Connection, journal: &StatementJournal, rows: u32) -> rusqlite::Result<()> {
        journal.begin_statement();
        connection.execute_batch(&format!("delete from t; begin; {}; commit", fill(rows)))
    }

    #[test]
    fn only_long_statements_in_memory_are_interrupted() {
        let mut connection = Connection::open_in_memory().unwrap();
        let journal = StatementJournal::install(&mut connection).unwrap();
        connection.execute_batch("create table t (i integer primary key)").unwrap();

        journal.keep_in_memory(&connection).unwrap();
        replace_rows(&connection, &journal, 1000).unwrap();
        assert!(is_interrupted(&replace_rows(&connection, &journal, 1_000_000).unwrap_err()));
        assert!(connection.is_autocommit(), "the statement is rolled back");
        journal.keep_in_file(&connection).unwrap();
        replace_rows(&connection, &journal, 1_000_000).unwrap();
    }

    #[test]
    fn short_runs_do_not_add_up_to_a_long_one() {
        let mut connection = Connection::open_in_memory().unwrap();
        let journal = StatementJournal::install(&mut connection).unwrap();
        connection.execute_batch("create table t (i integer)").unwrap();
        journal.keep_in_memory(&connection).unwrap();
        let mut statement = connection.prepare(&fill(1000)).unwrap();
        for _ in 0..200 {
            journal.begin_statement();
            statement.execute([]).unwrap();
        }
    }
}
