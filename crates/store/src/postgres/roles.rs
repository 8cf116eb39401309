//! The database roles behind [`crate::Scope`], with their grants and policies.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Transaction};

use super::error;
use crate::{StoreError, views};

/// The role of a tenant's transactions.
pub(crate) const TENANT_ROLE: &str = "mailroom_tenant";

/// The role that sees across tenants. It owns the tables.
pub(crate) const SYSTEM_ROLE: &str = "mailroom_system";

/// The roles of logins that read with SQL: the rows of their tenant, or all.
pub(crate) const TENANT_READER_ROLE: &str = "mailroom_tenant_reader";
pub(crate) const ALL_READER_ROLE: &str = "mailroom_all_reader";

/// How PostgreSQL spells the condition of a tenant's policy, after the name of the column.
pub(super) const TENANT_POLICY: &str = r#" = \( SELECT \(?NULLIF\(current_setting\('mailroom\.tenant'::text, true\), ''::text\)\)?::uuid( AS "?nullif"?)?\)"#;

/// The same of the readers' policies, whole; `{KEY}` is the column.
const TENANT_READER_POLICY: &str =
    r#"^\({KEY} = \( SELECT mailroom_reader_tenant\(\)( AS "?mailroom_reader_tenant"?)?\)\)$"#;
const ALL_READER_POLICY: &str = r#"^\( SELECT mailroom_reader_sees_all\(\)( AS "?mailroom_reader_sees_all"?)?\)$"#;

/// The texts that every migration run restates, in this order.
const EACH_TIME: &[&str] = &[
    include_str!("../../migrations/each_time/1_row_security.postgres.sql"),
    include_str!("../../migrations/each_time/2_search.postgres.sql"),
    include_str!("../../migrations/each_time/3_partitions.postgres.sql"),
    include_str!("../../migrations/each_time/4_events.postgres.sql"),
    include_str!("../../migrations/each_time/5_claim_jobs.postgres.sql"),
    include_str!("../../migrations/each_time/6_sql_readers.postgres.sql"),
];

/// Gives the list of migrations to mailroom_system like everything else, so that a dump by that role is complete; the
/// login that migrates reads it and adds to it.
const OWN_HISTORY: &str = "do $$
begin
    if (select tableowner from pg_tables where schemaname = current_schema() and tablename = 'schema_migrations') <> 'mailroom_system' then
        alter table schema_migrations owner to mailroom_system;
    end if;
    if not has_table_privilege(session_user, 'schema_migrations', 'select, insert') then
        set local role mailroom_system;
        execute format('grant select, insert on schema_migrations to %I', session_user);
        reset role;
    end if;
end $$";

/// Roles belong to the whole server, so that migrations of two databases can collide here; each attempt takes milliseconds.
const MAX_ROLE_ATTEMPTS: u64 = 40;

/// Makes what is missing and changes nothing else: the roles, our membership in them without inheriting (or the plain
/// login would see all that mailroom_system sees), and the schema's rights.
const MAKE_ROLES: &str = "do $$
declare
    login text := quote_ident(session_user);
    schema text := quote_ident(current_schema());
    owner text := (select nspowner::regrole::text from pg_namespace where nspname = current_schema());
    is_16 boolean := current_setting('server_version_num')::int >= 160000;
    is_superuser boolean := (select rolsuper from pg_roles where rolname = session_user);
    role text;
begin
    foreach role in array array['mailroom_tenant', 'mailroom_system', 'mailroom_tenant_reader', 'mailroom_all_reader'] loop
        if to_regrole(role) is null then
            execute format('create role %s nologin', role);
        end if;
        if not pg_has_role(session_user, role, case when is_16 then 'set' else 'member' end)
            or (is_16 and not is_superuser and pg_has_role(session_user, role, 'usage')) then
            execute format('grant %s to %s %s', role, login, case when is_16 then 'with inherit false, set true' else '' end);
        end if;
    end loop;
    if not (has_schema_privilege(session_user, current_schema(), 'create')
            and has_schema_privilege('mailroom_system', current_schema(), 'create')
            and has_schema_privilege('mailroom_tenant', current_schema(), 'usage')
            and has_schema_privilege('mailroom_tenant_reader', current_schema(), 'usage')
            and has_schema_privilege('mailroom_all_reader', current_schema(), 'usage')) then
        -- The owner of the database owns the schema through a role, which it cannot inherit from once it inherits from none.
        execute format('set local role %s', owner);
        execute format('grant create, usage on schema %s to %s, mailroom_system', schema, login);
        execute format('grant usage on schema %s to mailroom_tenant, mailroom_tenant_reader, mailroom_all_reader', schema);
        reset role;
    end if;
    if not is_superuser and pg_has_role(session_user, 'mailroom_system', 'usage') then
        execute format('grant create, usage on schema %s to %s', schema, login);
        execute format('alter role %s noinherit', login);
    end if;
end $$";

pub(crate) async fn make_roles(client: &Client) -> Result<(), StoreError> {
    let mut tries = 1;
    loop {
        let Err(e) = client.batch_execute(MAKE_ROLES).await else { return Ok(()) };
        let is_race = match e.code() {
            Some(&SqlState::DUPLICATE_OBJECT | &SqlState::UNIQUE_VIOLATION | &SqlState::T_R_DEADLOCK_DETECTED) => true,
            // What PostgreSQL says when two transactions change the same role.
            Some(&SqlState::INTERNAL_ERROR) => {
                e.as_db_error().is_some_and(|refusal| refusal.message().contains("concurrently"))
            }
            _ => false,
        };
        if e.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return Err(ask_administrator(client).await?);
        }
        if !is_race || tries == MAX_ROLE_ATTEMPTS {
            return Err(error(e));
        }
        tokio::time::sleep(Duration::from_millis(5 * tries)).await;
        tries += 1;
    }
}

/// Returns the statements that an administrator must run once, for a login that may not make roles.
async fn ask_administrator(client: &Client) -> Result<StoreError, StoreError> {
    let sql = "select quote_ident(session_user), quote_ident(current_schema()), current_setting('server_version_num')::int >= 160000";
    let rows = client.query_typed(sql, &[]).await.map_err(error)?;
    let row = rows.first().ok_or_else(|| StoreError::other("the database does not return its session user"))?;
    let (login, schema, is_16): (String, String, bool) = (row.get(0), row.get(1), row.get(2));
    let roles = [TENANT_ROLE, SYSTEM_ROLE, TENANT_READER_ROLE, ALL_READER_ROLE];
    let make: String = roles.iter().map(|role| format!("create role {role} nologin; ")).collect();
    let roles = roles.join(", ");
    let inherit = if is_16 {
        format!("grant {roles} to {login} with inherit false;")
    } else {
        format!("grant {roles} to {login}; alter role {login} noinherit;")
    };
    Ok(StoreError::Refused(
        format!(
            "the login {login} may not make Mailroom's roles; let an administrator run this in the database, then migrate again: \
             {make}{inherit} grant create, usage on schema {schema} to {login}, {SYSTEM_ROLE}; \
             grant usage on schema {schema} to {TENANT_ROLE}, {TENANT_READER_ROLE}, {ALL_READER_ROLE};"
        )
        .into(),
    ))
}

pub(crate) async fn own_history(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.batch_execute(OWN_HISTORY).await.map_err(error)
}

/// Restates policies, grants and functions. Runs as the role that owns the tables.
pub(crate) async fn reapply_policies(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    run_as_system(transaction).await?;
    for text in EACH_TIME {
        transaction.batch_execute(&filled_in(text)).await.map_err(error)?;
    }
    transaction.batch_execute("reset role").await.map_err(error)
}

/// Fills in what the texts about rights take from elsewhere: how the server spells our policies, and the SQL views.
pub(super) fn filled_in(text: &str) -> String {
    text.replace("{TENANT_POLICY}", &TENANT_POLICY.replace('\'', "''"))
        .replace("{TENANT_READER_POLICY}", TENANT_READER_POLICY)
        .replace("{ALL_READER_POLICY}", ALL_READER_POLICY)
        .replace("{VIEWS}", &views::postgres_statements())
        .replace("{VIEW_COLUMNS}", &views::view_columns())
        .replace("{READABLE_COLUMNS}", &views::readable_columns())
}

/// Returns every text that decides about rights.
#[cfg(feature = "testing")]
pub(crate) fn texts() -> Vec<String> {
    [MAKE_ROLES, OWN_HISTORY].iter().chain(EACH_TIME).map(|text| filled_in(text)).collect()
}

pub(crate) async fn run_as_system(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.batch_execute(&format!("set local role {SYSTEM_ROLE}")).await.map_err(error)
}
