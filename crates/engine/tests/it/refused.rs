//! P6: a message that the database does not take harms only itself.

use domain::{Flags, Limits};
use engine::Progress;
use engine::ingest::{Message, Source};
use store::Location;
use store::testing::{on_each_database, run_sql};

use crate::bench::Bench;

/// Stands for whatever a database may refuse one day: a value that its types or indexes do not hold.
async fn refuse_the_subject_bad(location: &Location) {
    match location {
        Location::Sqlite { path, .. } => {
            let trigger = "create trigger refuse before insert on emails when new.subject = 'bad'
                           begin select raise(abort, 'not this one'); end";
            rusqlite::Connection::open(path).unwrap().execute_batch(trigger).unwrap();
        }
        Location::Postgres { url, .. } => {
            let trigger = "create function refuse() returns trigger language plpgsql as $$
                               begin raise exception 'not this one'; end $$;
                           create trigger refuse before insert on emails for each row
                               when (new.subject = 'bad') execute function refuse()";
            run_sql(url, trigger).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_rest_of_a_batch_is_stored_when_the_database_refuses_one_message() {
    on_each_database(|database| async move {
        let folder = tempfile::tempdir().unwrap();
        refuse_the_subject_bad(&database.location).await;
        let bench = Bench::new(database.store, folder.path(), Limits::default()).await;
        let inbox = bench.folders(&["INBOX".into()]).await["INBOX"];
        let message = |subject: &str| Message {
            raw: format!("Subject: {subject}\n\nhello").into_bytes().into(),
            source: Source::File { folder: inbox, flags: Flags::default() },
            received_at: None,
            origin: format!("{subject}.eml"),
        };

        let ingested = bench.ingest(["one", "bad", "two", "two"].map(message)).await;

        assert_eq!((ingested.stored, ingested.duplicates), (2, 1));
        let [refused] = ingested.refused.as_slice() else { panic!("{:?}", ingested.refused) };
        assert!(refused.starts_with("bad.eml is not taken by the database (not this one)"), "{refused}");
        let report = bench.engine.verify(&bench.tenant, None, true, &Progress::default()).await.unwrap();
        assert_eq!((report.totals.emails, report.differences.len()), (2, 0), "{:?}", report.differences);
    })
    .await;
}
