use std::collections::HashSet;
use std::sync::Arc;

use domain::SystemClock;
use store::testing::{admin_url, fresh_postgres, migrated_postgres, migrated_sqlite, on_each_database, run_sql};
use store::{Location, Store, StoreError, migrate};
use tempfile::tempdir;

fn open(location: &Location) -> Store {
    Store::open(location, Arc::new(SystemClock)).unwrap()
}

#[tokio::test]
async fn second_migration_changes_nothing() {
    let folder = tempdir().unwrap();
    for location in [Location::Sqlite { path: folder.path().join("m.db"), connections: 4 }, fresh_postgres().await] {
        let store = open(&location);
        assert_eq!(store.migrate().await.unwrap().len(), migrate::latest_version() as usize);

        assert_eq!(store.migrate().await.unwrap(), Vec::<&str>::new());
        assert_eq!(store.schema_version().await.unwrap(), migrate::latest_version());
        store.check_schema().await.unwrap();
    }
}

/// What most tests run on is as if it had been migrated.
#[tokio::test]
async fn template_copy_needs_no_migration() {
    on_each_database(|db| async move {
        assert_eq!(db.store.migrate().await.unwrap(), Vec::<&str>::new());
        db.store.check_schema().await.unwrap();
        assert_eq!(db.store.system().isolation_problems().await.unwrap(), Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn template_copies_have_origins_of_their_own() {
    let folders = [tempdir().unwrap(), tempdir().unwrap()];
    let databases = [
        migrated_sqlite(folders[0].path()).await,
        migrated_sqlite(folders[1].path()).await,
        migrated_postgres().await,
        migrated_postgres().await,
    ];
    let mut origins = HashSet::new();
    for db in &databases {
        let rows = db.rows("select applied_at from schema_migrations where version = 1").await;
        origins.insert(rows[0].get::<String>(0).unwrap());
    }

    assert_eq!(origins.len(), databases.len());
}

#[tokio::test]
async fn concurrent_migrations_apply_each_once() {
    let folder = tempdir().unwrap();
    for location in [Location::Sqlite { path: folder.path().join("m.db"), connections: 4 }, fresh_postgres().await] {
        let stores: Vec<Store> = (0..4).map(|_| open(&location)).collect();
        let runs = stores.into_iter().map(|store| tokio::spawn(async move { store.migrate().await }));

        let mut applied = 0;
        for run in runs.collect::<Vec<_>>() {
            applied += run.await.unwrap().unwrap().len();
        }

        assert_eq!(applied, migrate::latest_version() as usize);
    }
}

#[tokio::test]
async fn empty_database_is_outdated() {
    let folder = tempdir().unwrap();
    for location in [Location::Sqlite { path: folder.path().join("m.db"), connections: 4 }, fresh_postgres().await] {
        let store = open(&location);

        assert!(matches!(store.check_schema().await, Err(StoreError::Outdated { found: 0, .. })));
    }
}

#[tokio::test]
async fn newer_schema_is_refused() {
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
async fn concurrent_openers_of_a_new_file_succeed() {
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
async fn login_without_createrole_gets_the_statements() {
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

    assert_eq!(store.migrate().await.unwrap().len(), migrate::latest_version() as usize);
    assert_eq!(store.system().isolation_problems().await.unwrap(), Vec::<String>::new());
}
