//! Operations on logins that read with SQL.

use domain::Secret;
use engine::operations::sql_readers::{self, NewSqlReader};
use engine::operations::{Operation, Refusal};
use store::sql::sql_readers::scram_verifier;
use store::testing::{admin_url, run_sql};
use store::{Dialect, Location, Store, StoreError};

use super::subject::Subject;

pub async fn perform(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    // Roles belong to the server, where other tests have theirs.
    let login = format!("r{}", subject.tenant.id.to_string().replace('-', ""));
    let done = match operation.name {
        "sql_reader.grant" => {
            let new = NewSqlReader { login: login.clone(), tenant: Some(subject.tenant.id), password: None };
            sql_readers::grant(&subject.call().await, new).await.map(drop)
        }
        "sql_reader.revoke" => {
            let store = subject.app.store();
            if store.dialect() == Dialect::Postgres && !is_reader(store, &login).await? {
                let (verifier, now) = (scram_verifier(&Secret::new("x".to_owned())), store.clock().now());
                store.system().grant_sql_reader(&login, Some(subject.tenant.id), Some(&verifier), now).await?;
            }
            sql_readers::revoke(&subject.call().await, &login).await.map(drop)
        }
        other => panic!("{other} has no case"),
    };
    if let Location::Postgres { url, .. } = &subject.app.db.location {
        run_sql(&admin_url(url), &format!("drop role if exists {login}")).await?;
    }
    done
}

async fn is_reader(store: &Store, login: &str) -> Result<bool, StoreError> {
    Ok(store.system().list_sql_readers().await?.iter().any(|reader| reader.login == login))
}
