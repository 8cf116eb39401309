//! Lets a login read with SQL.

use domain::{Secret, TenantId};
use jiff::Timestamp;
use serde_json::json;
use store::sql::sql_readers::{ServerRole, scram_verifier};

use super::{audited, check_database, find};
use crate::credentials::api_keys::new_password;
use crate::operations::{Invocation, Refusal, SQL_READER_GRANT};

/// The longest name that PostgreSQL keeps whole.
const MAX_LOGIN_BYTES: usize = 63;

/// A login to let in.
#[derive(Debug, Clone)]
pub struct NewSqlReader {
    pub login: String,
    /// `None`: it reads the rows of all tenants.
    pub tenant: Option<TenantId>,
    /// `None`: one is generated.
    pub password: Option<Secret<String>>,
}

/// A login that reads from now on.
#[derive(Debug, Clone)]
pub struct GrantedReader {
    pub login: String,
    pub tenant: Option<TenantId>,
    pub created_at: Timestamp,
    /// Not shown again. `None`: the server had the login, with a password of its own.
    pub password: Option<Secret<String>>,
}

/// Lets a login read the SQL views, with the rows of a tenant or of all. Makes the login, unless an administrator has made it
/// a reader.
pub async fn grant(call: &Invocation<'_, GrantedReader>, new: NewSqlReader) -> Result<GrantedReader, Refusal> {
    check_database(call)?;
    check(&new)?;
    let NewSqlReader { login, tenant, password } = new;
    if find(call, &login).await?.is_some() {
        return Err(Refusal::Conflict(format!("{login} is a reader already; revoke it first")));
    }
    let password = match call.engine.store.system().find_server_role(&login).await? {
        Some(role) => check_role(role, &login, tenant, password.as_ref())?,
        None if call.engine.store.system().may_make_roles().await? => Some(password.map_or_else(new_password, Ok)?),
        None => return Err(ask_administrator(&login, tenant)),
    };
    let granted = GrantedReader { login, tenant, created_at: call.now, password };
    let mut change = audited(&SQL_READER_GRANT, tenant, &granted.login);
    change.after =
        Some(json!({"login": granted.login, "tenant_id": tenant, "makes_login": granted.password.is_some()}));
    let recording = call.record(change, &granted).await?;
    let verifier = granted.password.as_ref().map(scram_verifier);
    let system = recording.engine.store.system();
    system.grant_sql_reader(&granted.login, tenant, verifier.as_ref(), call.now).await?;
    recording.finish().await?;
    Ok(granted)
}

fn check(new: &NewSqlReader) -> Result<(), Refusal> {
    let is_plain = new.login.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let begins_well = new.login.starts_with(|first: char| first.is_ascii_lowercase());
    if !is_plain || !begins_well || new.login.len() > MAX_LOGIN_BYTES {
        let expected = "must be 1 to 63 lower-case letters, digits and underscores, the first a letter";
        return Err(Refusal::invalid("login", expected));
    }
    // What PostgreSQL keeps for itself, and ours.
    if ["pg_", "mailroom_"].iter().any(|reserved| new.login.starts_with(reserved)) || new.login == "none" {
        return Err(Refusal::invalid("login", "must not be none, and not begin with pg_ or mailroom_"));
    }
    Ok(())
}

/// Refuses a login that is there and was not made for this. Returns no password: it has its own.
fn check_role(
    role: ServerRole,
    login: &str,
    tenant: Option<TenantId>,
    password: Option<&Secret<String>>,
) -> Result<Option<Secret<String>>, Refusal> {
    let is_reader = (role.is_tenant_reader, role.is_all_reader) == (tenant.is_some(), tenant.is_none());
    if !is_reader || role.is_more {
        let text = format!("the server has a role {login} that is no reader of this kind; choose another name");
        return Err(Refusal::Conflict(text));
    }
    if password.is_some() {
        return Err(Refusal::Conflict(format!(
            "the server has the login {login} with a password of its own; give none"
        )));
    }
    Ok(None)
}

fn ask_administrator(login: &str, tenant: Option<TenantId>) -> Refusal {
    let group = if tenant.is_some() { "mailroom_tenant_reader" } else { "mailroom_all_reader" };
    Refusal::Conflict(format!(
        "Mailroom's login may not make roles; let an administrator run: create role {login} login password '…' in role {group}; \
         then run this again"
    ))
}
