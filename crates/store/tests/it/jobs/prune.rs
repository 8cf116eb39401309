//! History that is old enough leaves.

use std::time::Duration;

use domain::{JobState, TenantId};
use store::sql::jobs::{JobFilter, JobRetention, PruneReport};
use store::testing::on_each_database;

use super::diagnosis::{kill, new_id, worker};
use super::transitions::{claim, enqueue, job};

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn dead_letters_outlive_other_finished_jobs() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let gone = worker(&db.store, &["a"]).await;
        let (done, dead, live) = (job("a"), job("b"), job("c"));
        enqueue(&db.store, vec![done.clone(), dead.clone(), live.clone()]).await;
        kill(&db.store, gone, dead.id).await;
        let claimed = claim(&db.store, gone, 10).await;
        system.finish_done(&claimed, new_id).await.unwrap();
        system.dismiss_worker(gone).await.unwrap();

        let young = system.prune_jobs(JobRetention { finished: LONG, dead: LONG }).await.unwrap();
        assert_eq!((young.jobs, young.workers, young.is_more), (0, 0, false));
        // Until the database's clock has moved on from the moment at which they ended.
        let mut pruned = 0;
        while pruned == 0 {
            pruned = system.prune_jobs(JobRetention { finished: Duration::ZERO, dead: LONG }).await.unwrap().jobs;
        }
        assert_eq!(pruned, 1);
        assert!(system.find_job(done.id).await.unwrap().is_none());
        assert_eq!(system.find_job(dead.id).await.unwrap().unwrap().state, JobState::Dead);
        let pruned = system.prune_jobs(JobRetention { finished: Duration::ZERO, dead: Duration::ZERO }).await.unwrap();
        assert_eq!(pruned.jobs, 1);
        assert!(system.list_attempts(TenantId::SYSTEM, dead.id).await.unwrap().is_empty());
        let left = system.list_jobs(&JobFilter::default(), None, 10).await.unwrap();
        assert_eq!(left.iter().map(|job| job.id).collect::<Vec<_>>(), [live.id]);
        let nothing = system.prune_jobs(JobRetention { finished: Duration::ZERO, dead: Duration::ZERO }).await.unwrap();
        assert_eq!(nothing, PruneReport::default());
    })
    .await;
}

#[tokio::test]
async fn pruned_queue_counts_right_when_used_again() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let worker = worker(&db.store, &["a"]).await;
        let keep = JobRetention { finished: LONG, dead: LONG };
        for _ in 0..3 {
            enqueue(&db.store, vec![job("a")]).await;
            let claimed = claim(&db.store, worker, 10).await;
            assert_eq!(claimed.len(), 1);
            system.finish_done(&claimed, new_id).await.unwrap();
            system.prune_jobs(keep).await.unwrap();
        }

        assert_eq!(system.count_strays().await.unwrap().total(), 0);
        assert!(system.tenant_depths().await.unwrap().is_empty());
    })
    .await;
}
