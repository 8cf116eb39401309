use std::sync::Arc;

use domain::SystemClock;
use store::testing::{admin_url, fresh_postgres, migrated_postgres, on_each_database, run_sql};
use store::{Location, Store, StoreError, migrate};
use tempfile::tempdir;

fn open(location: &Location) -> Store {
    Store::open(location, Arc::new(SystemClock)).unwrap()
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    on_each_database(|db| async move {
        assert_eq!(db.store.migrate().await.unwrap(), Vec::<&str>::new());
        assert_eq!(db.store.schema_version().await.unwrap(), migrate::known());
        db.store.check_schema().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn processes_that_migrate_at_once_apply_each_migration_once() {
    let folder = tempdir().unwrap();
    for location in [Location::Sqlite { path: folder.path().join("m.db"), connections: 4 }, fresh_postgres().await] {
        let stores: Vec<Store> = (0..4).map(|_| open(&location)).collect();
        let runs = stores.into_iter().map(|store| tokio::spawn(async move { store.migrate().await }));

        let mut applied = 0;
        for run in runs.collect::<Vec<_>>() {
            applied += run.await.unwrap().unwrap().len();
        }

        assert_eq!(applied, migrate::known() as usize);
    }
}

#[tokio::test]
async fn an_empty_database_is_outdated_until_migrated() {
    let folder = tempdir().unwrap();
    for location in [Location::Sqlite { path: folder.path().join("m.db"), connections: 4 }, fresh_postgres().await] {
        let store = open(&location);

        assert!(matches!(store.check_schema().await, Err(StoreError::Outdated { found: 0, .. })));
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let newer = "insert into schema_migrations values (9999, 'future', '', '')";
    on_each_database(|db| async move {
        match &db.location {
            Location::Sqlite { path, .. } => {
                rusqlite::Connection::open(path).unwrap().execute_batch(newer).unwrap();
            }
            Location::Postgres { url, .. } => run_sql(url, newer).await.unwrap(),
        }

        assert!(matches!(db.store.check_schema().await, Err(StoreError::Newer { found: 9999, .. })));
        assert!(matches!(db.store.migrate().await, Err(StoreError::Newer { found: 9999, .. })));
    })
    .await;
}

#[tokio::test]
async fn openers_of_a_new_file_at_the_same_moment_wait_for_each_other() {
    for _ in 0..50 {
        let folder = tempdir().unwrap();
        let location = Location::Sqlite { path: folder.path().join("m.db"), connections: 1 };
        let barrier = std::sync::Barrier::new(4);
        let opener = || {
            barrier.wait();
            Store::open(&location, Arc::new(SystemClock)).map(drop)
        };

        let outcomes = std::thread::scope(|scope| {
            let openers: Vec<_> = (0..4).map(|_| scope.spawn(opener)).collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect::<Vec<_>>()
        });

        for outcome in outcomes {
            outcome.unwrap();
        }
    }
}

/// As on many a server: an administrator makes roles, and the login owns its database.
#[tokio::test]
async fn a_login_that_may_not_make_roles_is_told_what_an_administrator_must_run() {
    drop(migrated_postgres().await); // the server has the roles; the login has nothing of them
    let Location::Postgres { url, .. } = fresh_postgres().await else { panic!("it is a PostgreSQL") };
    let name = url.rsplit('/').next().unwrap();
    let login = format!("{name}_plain");
    run_sql(&url, &format!("create role {login} login password '{login}'; alter database {name} owner to {login}"))
        .await
        .unwrap();
    let (_, place) =
        admin_url(&url).rsplit_once('@').map(|(login, place)| (login.to_owned(), place.to_owned())).unwrap();
    let store = open(&Location::Postgres { url: format!("postgres://{login}:{login}@{place}"), connections: 2 });

    let refused = store.migrate().await.unwrap_err().to_string();
    let (_, advice) = refused.split_once("then migrate again: ").unwrap_or_else(|| panic!("{refused}"));
    assert!(
        refused.starts_with(&format!("the login {login} may not make Mailroom's roles; let an administrator run this"))
    );
    // The roles are there already, so the first two statements have nothing to do.
    let statements: Vec<&str> = advice.split(';').filter(|statement| !statement.contains("create role")).collect();
    run_sql(&url, &statements.join(";")).await.unwrap();

    assert_eq!(store.migrate().await.unwrap().len(), migrate::known() as usize);
    assert_eq!(store.system().isolation_problems().await.unwrap(), Vec::<String>::new());
}
