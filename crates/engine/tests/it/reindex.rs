//! The job `reindex`: tokens are made once more from the stored originals, batch by batch.

use std::fs;
use std::path::{Path, PathBuf};

use content::query;
use domain::JobState;
use domain::search::TOKENS_VERSION;
use engine::Progress;
use engine::archive::reindex::{ReindexRun, ReindexScope};
use store::TenantStore;
use store::sql::jobs::{CancelOutcome, JobScope};
use store::sql::reindex::{ReindexRange, TokenReplacement};
use store::sql::search::SearchPage;
use testkit::app::ADDRESS;
use testkit::{TestApp, on_each_app, wait_until};

/// More than one batch.
const MANY: usize = 450;

async fn import(app: &TestApp, count: usize) -> TenantStore {
    let acme = app.create_tenant("acme").await;
    let messages = (0..count).map(|n| {
        let day = 1 + n % 28;
        format!("Subject: letter {n}\nDate: {day:02} Jan 2026 12:00:00 +0000\n\nan apple a day")
    });
    assert_eq!(app.import(&acme, ADDRESS, "INBOX", messages).await.stored, count as u64);
    acme
}

/// Gives every email an entry that finds nothing of it, as if an earlier version had made it.
async fn spoil_the_index(app: &TestApp, tenant: &TenantStore) {
    let mut unit = tenant.write();
    unit.replace_tokens(outdated_tokens(tenant).await);
    unit.commit().await.unwrap();
    assert_eq!(find(tenant, "apple").await, 0);
    assert!(app.engine.verify(tenant, None, false, &Progress::default()).await.unwrap().differences.is_empty());
}

async fn outdated_tokens(tenant: &TenantStore) -> Vec<TokenReplacement> {
    let entries = tenant.list_index_entries(ReindexRange::default(), TOKENS_VERSION, 10_000).await.unwrap();
    let originals = tenant.list_originals(entries.iter().map(|entry| entry.email).collect()).await.unwrap();
    let tokens = originals.into_iter().map(|original| TokenReplacement {
        email: original.email,
        raw_sha256: original.raw_sha256,
        is_missing: false,
        tokens: "outdated".to_owned(),
    });
    tokens.collect()
}

async fn find(tenant: &TenantStore, text: &str) -> usize {
    let page = SearchPage { limit: 10_000, ..SearchPage::default() };
    tenant.search(&query::parse(text).unwrap(), &page).await.unwrap().len()
}

async fn last_run(app: &TestApp, tenant: &TenantStore) -> (JobState, ReindexRun) {
    let job = app.engine.find_reindex(tenant.id).await.unwrap().unwrap();
    (job.state, serde_json::from_value(job.payload).unwrap())
}

fn pack_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(pack_files(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[tokio::test]
async fn reindex_makes_all_tokens_as_ingest_did() {
    on_each_app(async |app| {
        let acme = import(app, MANY).await;
        spoil_the_index(app, &acme).await;

        assert!(app.engine.request_reindex(acme.id, ReindexScope::All, None).await.unwrap());
        app.run_jobs_until_idle().await;

        assert_eq!((find(&acme, "\"apple a day\"").await, find(&acme, "subject:letter").await), (MANY, MANY));
        assert_eq!(find(&acme, "outdated").await, 0);
        let (state, run) = last_run(app, &acme).await;
        assert_eq!(state, JobState::Done);
        assert_eq!((run.total, run.examined, run.reindexed), (Some(MANY as u64), MANY as u64, MANY as u64));
        assert!(app.engine.verify(&acme, None, true, &Progress::default()).await.unwrap().differences.is_empty());
    })
    .await;
}

#[tokio::test]
async fn reindex_leaves_current_tokens_alone() {
    on_each_app(async |app| {
        let acme = import(app, 30).await;
        spoil_the_index(app, &acme).await; // of the current version, as far as the index tells

        app.engine.request_reindex(acme.id, ReindexScope::Stale, None).await.unwrap();
        app.run_jobs_until_idle().await;

        let (_, run) = last_run(app, &acme).await;
        assert_eq!((run.examined, run.reindexed), (30, 0));
        assert_eq!(find(&acme, "outdated").await, 30);
    })
    .await;
}

#[tokio::test]
async fn reindex_adds_missing_entries() {
    on_each_app(async |app| {
        let acme = import(app, 30).await;
        app.db.run("delete from email_search").await;
        assert_eq!(find(&acme, "apple").await, 0);

        app.engine.request_reindex(acme.id, ReindexScope::Stale, None).await.unwrap();
        app.run_jobs_until_idle().await;

        assert_eq!(find(&acme, "apple").await, 30);
        assert_eq!(last_run(app, &acme).await.1.reindexed, 30);
    })
    .await;
}

#[tokio::test]
async fn reindex_since_a_day_leaves_older_mail_alone() {
    on_each_app(async |app| {
        let acme = import(app, 28).await;
        spoil_the_index(app, &acme).await;

        let since = "2026-01-19T00:00:00Z".parse().unwrap();
        app.engine.request_reindex(acme.id, ReindexScope::All, Some(since)).await.unwrap();
        app.run_jobs_until_idle().await;

        assert_eq!((find(&acme, "apple").await, find(&acme, "outdated").await), (10, 18));
        assert_eq!(find(&acme, "apple before:2026-01-19").await, 0);
        assert_eq!(last_run(app, &acme).await.1.total, Some(10));
    })
    .await;
}

#[tokio::test]
async fn unreadable_original_is_counted_and_left_alone() {
    on_each_app(async |app| {
        let acme = import(app, 5).await;
        let damaged = pack_files(&app.folder.path().join("blobs"));
        app.import(&acme, ADDRESS, "INBOX", ["Subject: whole\n\nan apple too"]).await;
        spoil_the_index(app, &acme).await;
        for file in damaged {
            fs::remove_file(file).unwrap();
        }

        app.engine.request_reindex(acme.id, ReindexScope::All, None).await.unwrap();
        app.run_jobs_until_idle().await;

        let (state, run) = last_run(app, &acme).await;
        assert_eq!((state, run.examined, run.reindexed, run.unreadable), (JobState::Done, 6, 1, 5));
        assert_eq!((find(&acme, "apple").await, find(&acme, "outdated").await), (1, 5));
    })
    .await;
}

#[tokio::test]
async fn reindex_stopped_at_a_batch_continues_there() {
    on_each_app(async |app| {
        let acme = import(app, MANY).await;
        spoil_the_index(app, &acme).await;
        app.engine.request_reindex(acme.id, ReindexScope::All, None).await.unwrap();

        let worker = app.start_worker();
        wait_until("a batch is written", async || last_run(app, &acme).await.1.reindexed > 0).await;
        worker.shut_down().await;
        let (_, stopped) = last_run(app, &acme).await;
        assert_eq!(find(&acme, "apple").await as u64, stopped.reindexed, "the cursor moves with the tokens");
        app.run_jobs_until_idle().await;

        let (_, run) = last_run(app, &acme).await;
        assert_eq!((run.examined, run.reindexed), (MANY as u64, MANY as u64));
    })
    .await;
}

#[tokio::test]
async fn cancelled_reindex_stops() {
    on_each_app(async |app| {
        let acme = import(app, MANY).await;
        app.engine.request_reindex(acme.id, ReindexScope::All, None).await.unwrap();
        let worker = app.start_worker();
        let system = app.store().system();
        wait_until("a batch runs", async || last_run(app, &acme).await.0 == JobState::Running).await;
        // The batch that runs goes on; the next one waits, and so can be cancelled.
        system.pause_jobs(&JobScope::Kind("reindex".to_owned())).await.unwrap();
        wait_until("the next batch waits", async || {
            let (state, run) = last_run(app, &acme).await;
            state == JobState::Ready && run.reindexed > 0
        })
        .await;
        let job = app.engine.find_reindex(acme.id).await.unwrap().unwrap();
        let outcome = system.cancel_job(acme.id, job.id, "not now").await.unwrap();
        assert_eq!(outcome, CancelOutcome::Cancelled);
        system.resume_jobs(&JobScope::Kind("reindex".to_owned())).await.unwrap();
        app.wait_until_idle().await;
        worker.shut_down().await;

        let (state, run) = last_run(app, &acme).await;
        assert_eq!(state, JobState::Cancelled);
        assert!(run.reindexed < MANY as u64, "{run:?}");
    })
    .await;
}

#[tokio::test]
async fn second_request_joins_the_live_reindex() {
    on_each_app(async |app| {
        let acme = import(app, 10).await;
        spoil_the_index(app, &acme).await;

        assert!(app.engine.request_reindex(acme.id, ReindexScope::All, None).await.unwrap());
        assert!(!app.engine.request_reindex(acme.id, ReindexScope::Stale, None).await.unwrap());
        assert_eq!(app.count("jobs where kind = 'reindex'").await, 1);
        app.run_jobs_until_idle().await;

        assert_eq!(find(&acme, "apple").await, 10);
        assert!(app.engine.request_reindex(acme.id, ReindexScope::Stale, None).await.unwrap());
        app.run_jobs_until_idle().await;
    })
    .await;
}

#[tokio::test]
async fn reindex_for_a_newer_version_waits_for_it() {
    on_each_app(async |app| {
        let acme = import(app, 3).await;
        app.leaves_jobs(&["reindex"]);
        app.engine.request_reindex(acme.id, ReindexScope::All, None).await.unwrap();
        let run = ReindexRun { version: u32::MAX, ..ReindexRun::new(ReindexScope::All, None) };
        let payload = serde_json::to_string(&run).unwrap();
        app.db.run(&format!("update jobs set payload = '{payload}'")).await;

        app.run_jobs_until_idle().await;

        let (state, run) = last_run(app, &acme).await;
        assert_eq!((state, run.examined), (JobState::Retry, 0));
    })
    .await;
}
