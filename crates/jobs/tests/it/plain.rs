//! What the benchmark compares with: claims in plain order.

use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId};
use jobs::fair;
use store::SystemStore;
use store::sql::jobs::{Claimed, Head, NewJob, When};
use store::testing::on_each_database;

fn job(lane: Lane) -> NewJob {
    NewJob {
        id: JobId::new(&SystemClock),
        kind: "a".into(),
        lane,
        payload: serde_json::json!({}),
        when: When::Now,
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: None,
    }
}

/// By turns of two tenants, and the last one in a lane that goes first; their ids in the order that is plain.
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
async fn plain_order_is_that_of_lanes_and_time_whosever_jobs_they_are() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let kinds = ["a".to_owned()];
        let worker = system.register_worker("test", &kinds, Duration::from_secs(60)).await.unwrap();
        let fair_index = system.order_plainly().await.unwrap();

        let expected = add_twelve(&system).await;
        let (mut head, mut taken): (Head, Vec<Claimed>) = (Head::default(), Vec::new());
        for _ in 0..3 {
            taken.extend(system.claim_plainly(worker, &kinds, 5, &mut head).await.unwrap());
        }
        assert_eq!(taken.iter().map(|job| job.id).collect::<Vec<_>>(), expected);
        let finished = system.finish_done(&taken, || JobId::new(&SystemClock)).await.unwrap();
        assert_eq!(finished.len(), 12, "they are held as by any other claim");

        let expected = add_twelve(&system).await;
        let bare = system.claim_bare(worker, 100, &mut Head::default()).await.unwrap();
        assert_eq!(bare.len(), expected.len());
        assert_eq!(system.finish_bare(&bare).await.unwrap(), 12);
        assert!(system.claim_bare(worker, 100, &mut Head::default()).await.unwrap().is_empty());
        let rows = db.rows("select count(*) from finished_jobs where state = 'done' and worker is not null").await;
        assert_eq!(rows[0].get::<u64>(0).unwrap(), 24);

        // And back to what workers do.
        system.order_fairly(&fair_index).await.unwrap();
        add_twelve(&system).await;
        system.count_arrivals().await.unwrap();
        let shares = fair::plan(&system.list_candidates(&kinds).await.unwrap(), 100);
        assert_eq!(system.claim(worker, &shares).await.unwrap().len(), 12);
        system.forget_finished_jobs().await.unwrap();
        let left = db.rows("select count(*) from finished_jobs").await;
        assert_eq!(left[0].get::<u64>(0).unwrap(), 0);
    })
    .await;
}
