//! P6: a message that the database refuses harms only itself.

use engine::Progress;
use store::Location;
use store::testing::{on_each_database, run_sql};
use testkit::app::ADDRESS;
use testkit::{AppOptions, TestApp};

/// Stands for whatever a database may refuse one day: a value that its types or indexes do not hold.
pub async fn refuse_the_subject_bad(location: &Location) {
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
async fn refused_message_does_not_affect_its_batch() {
    on_each_database(|database| async move {
        refuse_the_subject_bad(&database.location).await;
        let app = TestApp::new(database, AppOptions::default());
        let acme = app.create_tenant("acme").await;
        let messages = ["one", "bad", "two", "two"].map(|subject| format!("Subject: {subject}\n\nhello"));

        let ingested = app.import(&acme, ADDRESS, "INBOX", messages).await;

        assert_eq!((ingested.stored, ingested.duplicates), (2, 1));
        let [refused] = ingested.refused.as_slice() else { panic!("{:?}", ingested.refused) };
        assert!(refused.starts_with("the database refuses 1.eml (not this one)"), "{refused}");
        let report = app.engine.verify(&acme, None, true, &Progress::default()).await.unwrap();
        assert_eq!((report.totals.emails, report.differences.len()), (2, 0), "{:?}", report.differences);
        app.finish().await;
    })
    .await;
}
