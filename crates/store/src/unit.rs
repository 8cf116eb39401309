//! Units of work: a write is a value, a list of operations with their preconditions, committed as one transaction.
//!
//! Nothing is awaited inside a unit, so the one SQLite writer is never held by a caller and no PostgreSQL lock
//! waits for a network; and because it is a value, it can be sent again when the database asks for that.

use crate::Precondition;
use crate::value::{ColumnType, Row, Value};

/// Operations that commit together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Unit {
    pub(crate) ops: Vec<Op>,
    /// Ids of emails that it records, so that PostgreSQL has partitions for them.
    pub(crate) emails: Vec<uuid::Uuid>,
    /// What it removes must be overwritten: SQLite's pages that become free, too.
    pub(crate) is_erasing: bool,
}

/// The operation of a unit that a count in [`CommitOutcome`] belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpId(usize);

#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub action: OpAction,
    pub expect: Option<RowExpectation>,
}

#[derive(Debug, Clone)]
pub(crate) enum OpAction {
    /// The same text on both databases.
    Statement {
        sql: String,
        params: Vec<Value>,
    },
    /// A statement whose rows are returned.
    Returning {
        sql: String,
        params: Vec<Value>,
    },
    Insert(Insert),
}

#[derive(Debug, Clone)]
pub(crate) struct RowExpectation {
    pub rows: u64,
    /// The precondition that has failed otherwise.
    pub or_else: Precondition,
}

/// Many rows into one table by one statement per database.
///
/// `select` may name the given columns as `u.<column>`; the rest of the text (`from`, `on_conflict`) is shared SQL.
#[derive(Debug, Clone)]
pub struct Insert {
    /// `emails (id, subject)`
    pub into: std::borrow::Cow<'static, str>,
    /// The columns of `u`.
    pub columns: &'static [(&'static str, ColumnType)],
    pub rows: Vec<Vec<Value>>,
    /// What is inserted, in terms of `u`.
    pub select: std::borrow::Cow<'static, str>,
    /// Joins and conditions after `from <given rows> u`.
    pub join_where: &'static str,
    pub on_conflict: std::borrow::Cow<'static, str>,
    pub batching: InsertBatching,
}

/// How many rows SQLite inserts by one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertBatching {
    /// One by one, each seeing those before it.
    One,
    Many,
    /// The rows of all units of a group commit by one last statement, without a count. An FTS5 index is written out
    /// whenever another statement begins.
    Group,
}

/// The result of each operation of a committed unit.
#[derive(Debug, Clone, Default)]
pub struct CommitOutcome {
    pub(crate) outcomes: Vec<OpOutcome>,
}

#[derive(Debug, Clone)]
pub(crate) enum OpOutcome {
    Changed(u64),
    Returned(Vec<Row>),
}

impl OpOutcome {
    pub fn rows(&self) -> u64 {
        match self {
            Self::Changed(rows) => *rows,
            Self::Returned(rows) => rows.len() as u64,
        }
    }
}

impl CommitOutcome {
    /// Returns how many rows the operation changed.
    pub fn changed(&self, op: OpId) -> u64 {
        self.outcomes[op.0].rows()
    }

    /// Returns the rows that the operation returned.
    pub(crate) fn returned(&self, op: OpId) -> &[Row] {
        match &self.outcomes[op.0] {
            OpOutcome::Returned(rows) => rows,
            OpOutcome::Changed(_) => &[],
        }
    }
}

impl Unit {
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Returns how many rows there are to write.
    pub(crate) fn rows(&self) -> usize {
        self.ops
            .iter()
            .map(|op: &Op| match &op.action {
                OpAction::Statement { .. } | OpAction::Returning { .. } => 1,
                OpAction::Insert(insert) => insert.rows.len(),
            })
            .sum()
    }

    pub(crate) fn op(&mut self, sql: impl Into<String>, params: Vec<Value>) -> OpId {
        self.push(Op { action: OpAction::Statement { sql: sql.into(), params }, expect: None })
    }

    pub(crate) fn op_returning(&mut self, sql: impl Into<String>, params: Vec<Value>) -> OpId {
        self.push(Op { action: OpAction::Returning { sql: sql.into(), params }, expect: None })
    }

    /// Adds a statement that must return exactly this many rows, or nothing of the unit is committed.
    pub(crate) fn op_returning_exactly(
        &mut self,
        rows: u64,
        or_else: Precondition,
        sql: impl Into<String>,
        params: Vec<Value>,
    ) -> OpId {
        let expect = Some(RowExpectation { rows, or_else });
        self.push(Op { action: OpAction::Returning { sql: sql.into(), params }, expect })
    }

    /// Adds a statement that must change exactly this many rows, or nothing of the unit is committed.
    pub(crate) fn op_exactly(
        &mut self,
        rows: u64,
        or_else: Precondition,
        sql: impl Into<String>,
        params: Vec<Value>,
    ) -> OpId {
        self.push(Op {
            action: OpAction::Statement { sql: sql.into(), params },
            expect: Some(RowExpectation { rows, or_else }),
        })
    }

    pub(crate) fn insert(&mut self, insert: Insert) -> OpId {
        self.push(Op { action: OpAction::Insert(insert), expect: None })
    }

    fn push(&mut self, op: Op) -> OpId {
        self.ops.push(op);
        OpId(self.ops.len() - 1)
    }
}

impl Insert {
    /// Returns `insert into … select … from unnest($1::uuid[], …) u …`: one array per column.
    pub(crate) fn postgres_sql(&self) -> String {
        let arrays: Vec<String> = self
            .columns
            .iter()
            .enumerate()
            .map(|(n, (_, kind))| format!("${}::{}[]", n + 1, kind.postgres()))
            .collect();
        self.sql(&format!("unnest({})", arrays.join(", ")), &format!("u({})", self.column_names()))
    }

    /// Returns the same statement over `rows` rows of values.
    pub(crate) fn sqlite_sql(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns.len()].join(", "));
        let given = format!("with u({}) as (values {}) ", self.column_names(), vec![row; rows].join(", "));
        given + &self.sql("u", "")
    }

    fn sql(&self, given: &str, alias: &str) -> String {
        let Self { into, select, join_where, on_conflict, .. } = self;
        // SQLite cannot tell `on conflict` from a join constraint without a `where` before it.
        let join_where =
            if join_where.contains("where ") { (*join_where).to_owned() } else { format!("{join_where} where true") };
        format!("insert into {into} select {select} from {given} {alias} {join_where} {on_conflict}")
    }

    fn column_names(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}
