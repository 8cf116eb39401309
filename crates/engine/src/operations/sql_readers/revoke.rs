//! Ends what a login reads with SQL.

use serde_json::json;

use super::{audited, check_database, find};
use crate::operations::{Invocation, Refusal, SQL_READER_REVOKE};

/// A login that reads nothing any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedReader {
    pub login: String,
    /// The server still has the login; an administrator can drop it.
    pub is_login_left: bool,
}

/// Ends what a login reads, effective with its next statement, and drops the login if it was made for this.
pub async fn revoke(call: &Invocation<'_, ()>, login: &str) -> Result<RevokedReader, Refusal> {
    check_database(call)?;
    let reader = find(call, login).await?.ok_or(Refusal::NotFound("reader"))?;
    let mut change = audited(&SQL_READER_REVOKE, reader.tenant_id, login);
    change.before = Some(json!({"login": login, "tenant_id": reader.tenant_id}));
    let recording = call.record(change, &()).await?;
    let system = recording.engine.store.system();
    // After a restore on another server, its name may be that of something else there.
    let role = system.find_server_role(login).await?;
    let is_ours = role.is_some_and(|role| (role.is_tenant_reader || role.is_all_reader) && !role.is_more);
    let drops_login = reader.makes_login && is_ours && system.may_make_roles().await?;
    system.revoke_sql_reader(login, drops_login).await?;
    recording.finish().await?;
    let is_login_left = call.engine.store.system().find_server_role(login).await?.is_some();
    Ok(RevokedReader { login: login.to_owned(), is_login_left })
}
