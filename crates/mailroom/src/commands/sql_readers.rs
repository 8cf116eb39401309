//! `mailroom sql grant`, `revoke`, `list`: the logins of PostgreSQL that read the views.

use std::collections::HashMap;
use std::path::PathBuf;

use domain::TenantId;
use engine::Engine;
use engine::operations::sql_readers::{self, NewSqlReader};
use engine::operations::{Invocation, Refusal};
use serde_json::json;
use store::Dialect;
use terminal::{Failure, Output, note};

use super::mailbox::secret::read_secret;
use crate::app;
use crate::cli::sql::SqlCommand;

pub async fn run(engine: &Engine, command: SqlCommand, out: Output) -> Result<(), Failure> {
    match command {
        SqlCommand::Grant { login, tenant, password_file } => grant(engine, login, tenant, password_file, out).await,
        SqlCommand::Revoke { login } => revoke(engine, &login, out).await,
        SqlCommand::List => list(engine, out).await,
    }
}

async fn grant(
    engine: &Engine,
    login: String,
    tenant: Option<String>,
    password_file: Option<PathBuf>,
    out: Output,
) -> Result<(), Failure> {
    let tenant = match tenant {
        Some(name) => Some(app::find_tenant(&engine.store, &name).await?.id),
        None => None,
    };
    let password = password_file.map(|file| read_secret(&file)).transpose()?;
    let is_generated = password.is_none();
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let granted = sql_readers::grant(&call, NewSqlReader { login, tenant, password }).await.map_err(app::refused)?;
    let (login, made) = (&granted.login, granted.password.is_some());
    let password = granted.password.filter(|_| is_generated);
    let password = password.as_ref().map(domain::Secret::expose);
    if out.json {
        return out.object(&json!({"login": login, "tenant_id": tenant, "makes_login": made, "password": password}));
    }
    let whose = if tenant.is_some() { "the rows of this tenant" } else { "the rows of all tenants" };
    match password {
        Some(password) => {
            note(&format!("{login} reads {whose}. This password is shown only now; store it safely."));
            out.line(password)
        }
        None => out.line(&format!("{login} reads {whose}.")),
    }
}

async fn revoke(engine: &Engine, login: &str, out: Output) -> Result<(), Failure> {
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let revoked = sql_readers::revoke(&call, login).await.map_err(|refusal| match refusal {
        Refusal::NotFound(_) => {
            Failure::problem(format!("there is no reader {login:?}; `mailroom sql list` shows them"))
        }
        refusal => app::refused(refusal),
    })?;
    if out.json {
        return out.object(&json!({"login": login, "revoked": true, "is_login_left": revoked.is_login_left}));
    }
    if revoked.is_login_left {
        note(&format!("The server still has the login, which an administrator can drop: drop role {login}"));
    }
    out.line(&format!("{login} reads nothing any more."))
}

async fn list(engine: &Engine, out: Output) -> Result<(), Failure> {
    let system = engine.store.system();
    let readers = match engine.store.dialect() {
        Dialect::Postgres => system.list_sql_readers().await?,
        Dialect::Sqlite => Vec::new(),
    };
    if out.json {
        return readers.iter().try_for_each(|reader| out.object(reader));
    }
    if readers.is_empty() {
        return out.line("No reader yet; on PostgreSQL, `mailroom sql grant LOGIN` makes one.");
    }
    let tenants = system.list_tenants().await?;
    let names: HashMap<TenantId, String> = tenants.into_iter().map(|tenant| (tenant.id, tenant.name)).collect();
    let rows: Vec<[String; 4]> = readers
        .into_iter()
        .map(|reader| {
            let tenant = reader.tenant_id.map_or_else(
                || "all tenants".to_owned(),
                |id| names.get(&id).cloned().unwrap_or_else(|| id.to_string()),
            );
            let state = if reader.can_log_in { "can log in" } else { "has no login on this server" };
            [reader.login, tenant, state.to_owned(), reader.created_at.strftime("%Y-%m-%d").to_string()]
        })
        .collect();
    out.table(["login", "reads", "state", "granted"], &rows)
}
