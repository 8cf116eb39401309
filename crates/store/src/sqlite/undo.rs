//! Where SQLite keeps copies of the pages that a statement changes, in case it fails half-way: in memory, which is fast.
//! A statement that goes on and on would fill it: it is stopped, and begun again with its copies in a file.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{Connection, ErrorCode};

/// SQLite asks whether to go on after so many steps of a statement, counted over all its runs; a row costs some dozens.
const STEPS: i32 = 20_000;

/// So often, and a run of a statement has had 200,000 steps at least.
const MOST_ASKED: u32 = 11;

const NEVER: u32 = u32::MAX / 2;

#[derive(Debug)]
pub(super) struct Undo {
    /// Counts down.
    asked: Arc<AtomicU32>,
    most_asked: Cell<u32>,
}

impl Undo {
    pub fn watch(connection: &mut Connection) -> rusqlite::Result<Self> {
        let asked = Arc::new(AtomicU32::new(NEVER));
        let count = asked.clone();
        connection.progress_handler(STEPS, Some(move || count.fetch_sub(1, Ordering::Relaxed) == 0))?;
        Ok(Self { asked, most_asked: Cell::new(NEVER) })
    }

    /// Before a transaction.
    pub fn in_memory(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.most_asked.set(MOST_ASKED);
        connection.pragma_update(None, "temp_store", "memory")
    }

    /// Before a transaction.
    pub fn in_file(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.stop_nothing();
        connection.pragma_update(None, "temp_store", "file")
    }

    /// What follows is not stopped, however long it takes.
    pub fn stop_nothing(&self) {
        self.most_asked.set(NEVER);
        self.statement_begins();
    }

    pub fn statement_begins(&self) {
        self.asked.store(self.most_asked.get(), Ordering::Relaxed);
    }
}

pub(super) fn is_stopped(e: &rusqlite::Error) -> bool {
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

    #[test]
    fn only_a_statement_that_goes_on_and_on_is_stopped_and_only_while_its_copies_are_in_memory() {
        let mut connection = Connection::open_in_memory().unwrap();
        let undo = Undo::watch(&mut connection).unwrap();
        connection.execute_batch("create table t (i integer primary key)").unwrap();
        let run = |rows: u32, more: &str| {
            undo.statement_begins();
            connection.execute_batch(&format!("delete from t; begin; {}; {more}", fill(rows)))
        };

        undo.in_memory(&connection).unwrap();
        run(1000, "commit").unwrap();
        assert!(is_stopped(&run(1_000_000, "commit").unwrap_err()));
        assert!(connection.is_autocommit(), "what it did is undone");
        undo.in_file(&connection).unwrap();
        run(1_000_000, "commit").unwrap();
    }

    #[test]
    fn many_short_runs_of_one_statement_are_not_one_long_run() {
        let mut connection = Connection::open_in_memory().unwrap();
        let undo = Undo::watch(&mut connection).unwrap();
        connection.execute_batch("create table t (i integer)").unwrap();
        undo.in_memory(&connection).unwrap();
        let mut statement = connection.prepare(&fill(1000)).unwrap();
        for _ in 0..200 {
            undo.statement_begins();
            statement.execute([]).unwrap();
        }
    }
}
