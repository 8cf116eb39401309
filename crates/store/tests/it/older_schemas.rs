//! Sets a new database back to an older schema, for tests of what a migration does to rows.

use store::Dialect;
use store::testing::TestDatabase;

/// What undoes a migration. Those that are absent can be applied again: 12 and 13 change rows only.
const UNDO: &[(u32, &[&str])] = &[
    (
        15,
        &[
            "drop index placements_missing",
            "alter table placements drop column missing_since",
            "alter table folders drop column missing_since",
            "alter table folders drop column missing_looks",
            "alter table folders drop column is_imported",
            "alter table sync_states drop column removals_held_since",
            "alter table sync_states drop column removals_held",
            "alter table sync_states drop column removals_looks",
            "alter table sync_states drop column removals_look_at",
            "alter table sync_states drop column removals_approved",
            "drop table unregistered_job_kinds",
            "drop table event_gaps",
            "drop index emails_deleted",
            "drop table restored_emails",
            "drop index jobs_parked",
            "alter table jobs drop column parked_on",
            "alter table jobs drop column wait_reason",
        ],
    ),
    (14, &["alter table sync_states drop column last_message_id"]),
];

/// Undoes the migrations after `version`, the newest first.
pub async fn set_back(db: &TestDatabase, version: u32) {
    if version < 15 && db.store.dialect() == Dialect::Sqlite {
        let statistics = "delete from sqlite_stat1 where idx = 'placements_missing'";
        db.run_all(&["drop table scrubs", "drop table scrub_filler", statistics]).await;
    }
    if version < 15 && db.store.dialect() == Dialect::Postgres {
        db.run("drop table sql_readers").await;
    }
    for (_, statements) in UNDO.iter().filter(|(migration, _)| *migration > version) {
        db.run_all(statements).await;
    }
    db.run(&format!("delete from schema_migrations where version > {version}")).await;
    assert_eq!(db.store.schema_version().await.unwrap(), version);
}
