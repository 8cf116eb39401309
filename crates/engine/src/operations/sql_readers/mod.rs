//! What an operator can do to the logins of PostgreSQL that read with SQL.

mod grant;
mod revoke;

pub use grant::{GrantedReader, NewSqlReader, grant};
pub use revoke::{RevokedReader, revoke};

use domain::TenantId;
use store::Dialect;
use store::sql::sql_readers::SqlReader;

use super::invocation::{AuditedChange, Invocation};
use super::{Operation, Refusal};

/// Refuses on SQLite, which has no logins.
fn check_database<T>(call: &Invocation<'_, T>) -> Result<(), Refusal> {
    match call.engine.store.dialect() {
        Dialect::Postgres => Ok(()),
        Dialect::Sqlite => Err(Refusal::Conflict(
            "SQLite has no logins: who can read its file reads all of it; `mailroom sql --tenant` shows the rows of one tenant"
                .to_owned(),
        )),
    }
}

async fn find<T>(call: &Invocation<'_, T>, login: &str) -> Result<Option<SqlReader>, Refusal> {
    let readers = call.engine.store.system().list_sql_readers().await?;
    Ok(readers.into_iter().find(|reader| reader.login == login))
}

/// Returns the record of a change, for the tenant that is read or, for all, the installation.
fn audited(operation: &'static Operation, tenant: Option<TenantId>, login: &str) -> AuditedChange {
    AuditedChange::new(operation, tenant.unwrap_or(TenantId::SYSTEM), login)
}
