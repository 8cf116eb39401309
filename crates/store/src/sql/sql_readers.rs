//! Logins of PostgreSQL that read with SQL: the row that says what each reads, and its role on the server.
//!
//! SQLite has no logins, and none of this.

use domain::{Secret, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use crate::{Row, StoreError, SystemStore, Unit, params};

/// Enough for a program with a pool; fewer than would take Mailroom's own connections from it.
const MAX_READER_CONNECTIONS: u32 = 10;

/// A person waits about as long. Readers can set another timeout.
const READER_STATEMENT_TIMEOUT: &str = "60s";

#[derive(Debug, Clone, Serialize)]
pub struct SqlReader {
    pub login: String,
    /// `None`: it reads the rows of all tenants.
    pub tenant_id: Option<TenantId>,
    /// The login was made for this. Else an administrator or another installation made it.
    pub makes_login: bool,
    /// The server has the login.
    pub can_log_in: bool,
    pub created_at: Timestamp,
}

/// A role of the server, as far as it matters for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRole {
    pub is_tenant_reader: bool,
    pub is_all_reader: bool,
    /// It can do more than read: it is a superuser, or a member of another role of Mailroom's.
    pub is_more: bool,
}

fn group(tenant: Option<TenantId>) -> &'static str {
    if tenant.is_some() { "mailroom_tenant_reader" } else { "mailroom_all_reader" }
}

impl SystemStore {
    pub async fn list_sql_readers(&self) -> Result<Vec<SqlReader>, StoreError> {
        let sql = "select r.login, r.tenant_id, r.makes_login, coalesce(p.rolcanlogin, false), r.created_at
                   from sql_readers r left join pg_roles p on p.rolname = r.login
                   where r.transaction_id = 0 order by r.login";
        self.query(sql, vec![]).await?.iter().map(sql_reader).collect()
    }

    /// Returns whether our own login may make and drop roles.
    pub async fn may_make_roles(&self) -> Result<bool, StoreError> {
        let sql = "select rolcreaterole or rolsuper from pg_roles where rolname = session_user";
        self.query_one(sql, vec![]).await?.map_or(Ok(false), |row| row.get(0))
    }

    pub async fn find_server_role(&self, name: &str) -> Result<Option<ServerRole>, StoreError> {
        let sql = "select not rolsuper and pg_has_role(oid, 'mailroom_tenant_reader', 'usage'),
                          not rolsuper and pg_has_role(oid, 'mailroom_all_reader', 'usage'),
                          rolsuper or rolbypassrls or pg_has_role(oid, 'mailroom_system', 'member') or pg_has_role(oid, 'mailroom_tenant', 'member')
                   from pg_roles where rolname = $1::text";
        let row = self.query_one(sql, params![name]).await?;
        row.map(|row| {
            Ok(ServerRole { is_tenant_reader: row.get(0)?, is_all_reader: row.get(1)?, is_more: row.get(2)? })
        })
        .transpose()
    }

    /// Lets a login read the rows of a tenant, or of all. With a password, as [`scram_verifier`] makes it, the login is made.
    pub async fn grant_sql_reader(
        &self,
        login: &str,
        tenant: Option<TenantId>,
        password: Option<&Secret<String>>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        if let Some(verifier) = password {
            let (verifier, group) = (verifier.expose(), group(tenant));
            // What is set for the login can be changed by it, and is for its convenience. What holds are grants and policies.
            unit.op_as_login(&format!(
                "create role {login} login nosuperuser nobypassrls nocreaterole nocreatedb inherit connection limit {MAX_READER_CONNECTIONS}
                     password '{verifier}' in role {group};
                 alter role {login} set default_transaction_read_only = on;
                 alter role {login} set statement_timeout = '{READER_STATEMENT_TIMEOUT}';
                 alter role {login} set idle_in_transaction_session_timeout = '{READER_STATEMENT_TIMEOUT}';
                 execute format('alter role {login} set search_path = %I', current_schema());"
            ));
        }
        unit.op(
            "insert into sql_readers (login, tenant_id, makes_login, created_at) values ($1, $2::uuid, $3, $4)",
            params![login, tenant, password.is_some(), at],
        );
        self.commit(unit).await.map(drop)
    }

    /// Ends what a login reads; statements that run already run to their end. With `drops_login` it is dropped too: where the
    /// server refuses that, it can log in no more; where it refuses that as well, it is as before, and reads nothing.
    pub async fn revoke_sql_reader(&self, login: &str, drops_login: bool) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op("delete from sql_readers where login = $1 and transaction_id = 0", params![login]);
        if drops_login {
            unit.op_as_login(&format!(
                "begin
                     drop role {login};
                 exception when dependent_objects_still_exist or object_in_use or insufficient_privilege then
                     begin
                         revoke mailroom_tenant_reader, mailroom_all_reader from {login};
                         alter role {login} nologin;
                     exception when insufficient_privilege then
                         null;
                     end;
                 end;"
            ));
        }
        self.commit(unit).await.map(drop)
    }
}

impl Unit {
    /// Runs statements as the login itself, which may make roles; mailroom_system may not.
    fn op_as_login(&mut self, statements: &str) {
        self.op("set local role none", vec![]);
        self.op(format!("do $as_login$ begin {statements} end $as_login$"), vec![]);
        self.op("set local role mailroom_system", vec![]);
    }
}

/// Returns what the server keeps of a password, so that neither the wire nor its log has the password itself.
pub fn scram_verifier(password: &Secret<String>) -> Secret<String> {
    Secret::new(postgres_protocol::password::scram_sha_256(password.expose().as_bytes()))
}

fn sql_reader(row: &Row) -> Result<SqlReader, StoreError> {
    Ok(SqlReader {
        login: row.get(0)?,
        tenant_id: row.get(1)?,
        makes_login: row.get(2)?,
        can_log_in: row.get(3)?,
        created_at: row.get(4)?,
    })
}
