//! The benchmark's baseline: claims in plain order, without fairness.

use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId};
use jobs::fair;
use store::SystemStore;
use store::bench::{self, FifoCursor};
use store::sql::jobs::{ClaimedJob, NewJob, StartTime};
use store::testing::on_each_database;

fn job(lane: Lane) -> NewJob {
    NewJob {
        id: JobId::new(&SystemClock),
        kind: "a".into(),
        lane,
        payload: serde_json::json!({}),
        when: StartTime::Now,
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: None,
    }
}

/// Adds twelve jobs of two tenants in alternation, the last one in a higher lane; returns their ids in plain order.
async fn add_twelve(system: &SystemStore) -> Vec<JobId> {
    let tenants = [(); 2].map(|()| TenantId::new(&SystemClock));
    let mut ids = Vec::new();
    for n in 0..12 {
        let job = job(if n == 11 { Lane::High } else { Lane::Normal });
        ids.push(job.id);
        let mut unit = system.write_for(tenants[n % 2]);
        unit.enqueue(vec![job]);
        unit.commit().await.unwrap();
    }
    ids.rotate_right(1);
    ids
}

#[tokio::test]
async fn plain_order_is_by_lane_and_time() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let kinds = ["a".to_owned()];
        let worker = system.register_worker("test", &kinds, Duration::from_secs(60)).await.unwrap();
        let fair_index = bench::use_fifo_index(&system).await.unwrap();

        let expected = add_twelve(&system).await;
        let (mut cursor, mut taken): (FifoCursor, Vec<ClaimedJob>) = (FifoCursor::default(), Vec::new());
        for _ in 0..3 {
            taken.extend(bench::claim_fifo(&system, worker, &kinds, 5, &mut cursor).await.unwrap());
        }
        assert_eq!(taken.iter().map(|job| job.id).collect::<Vec<_>>(), expected);
        let finished = system.finish_done(&taken, || JobId::new(&SystemClock)).await.unwrap();
        assert_eq!(finished.len(), 12, "they are held as by any other claim");

        let expected = add_twelve(&system).await;
        let bare = bench::claim_ids(&system, worker, 100, &mut FifoCursor::default()).await.unwrap();
        assert_eq!(bare.len(), expected.len());
        assert_eq!(bench::finish_unchecked(&system, &bare).await.unwrap(), 12);
        assert!(bench::claim_ids(&system, worker, 100, &mut FifoCursor::default()).await.unwrap().is_empty());
        let rows = db.rows("select count(*) from finished_jobs where state = 'done' and worker is not null").await;
        assert_eq!(rows[0].get::<u64>(0).unwrap(), 24);

        // And back to what workers do.
        bench::restore_fair_index(&system, &fair_index).await.unwrap();
        add_twelve(&system).await;
        system.count_arrivals().await.unwrap();
        let shares = fair::plan_shares(&system.list_queue_candidates(&kinds).await.unwrap(), 100);
        assert_eq!(system.claim_jobs(worker, &shares).await.unwrap().len(), 12);
        bench::truncate_finished_jobs(&system).await.unwrap();
        let left = db.rows("select count(*) from finished_jobs").await;
        assert_eq!(left[0].get::<u64>(0).unwrap(), 0);
    })
    .await;
}
