//! Recurring jobs: fired once per time, missed and overlapping ones by their policy.

use std::time::Duration;

use domain::{Clock, Lane, TenantId, TestClock};
use jobs::recurring::{self, RecurringError, TickReport};
use serde_json::json;
use store::sql::jobs::{JobFilter, JobRow};
use store::sql::schedules::{LeaseToken, MissedPolicy, NewSchedule, OverlapPolicy, Schedule};
use store::testing::{TestDatabase, on_each_database};
use store::{Location, Store, StoreError, SystemStore};

const HOUR: Duration = Duration::from_secs(3600);

fn hourly(missed: MissedPolicy, overlap: OverlapPolicy) -> NewSchedule {
    NewSchedule {
        name: "sweep".into(),
        tenant: TenantId::SYSTEM,
        kind: "noop".into(),
        lane: Lane::Low,
        payload: json!({}),
        cron: "0 * * * *".into(),
        zone: "UTC".into(),
        missed,
        overlap,
    }
}

/// Returns a clock at half past, so that the next time is in half an hour.
fn clock() -> TestClock {
    TestClock::at("2026-05-01T10:30:00Z".parse().unwrap())
}

async fn live(system: &SystemStore) -> Vec<JobRow> {
    system.list_jobs(&JobFilter::default(), None, 100).await.unwrap()
}

async fn get(store: &Store) -> Schedule {
    store.system().find_schedule(TenantId::SYSTEM, "sweep").await.unwrap().unwrap()
}

fn fired() -> TickReport {
    TickReport { fired: vec!["sweep".into()], ..TickReport::default() }
}

#[tokio::test]
async fn due_schedule_fires_once_over_all_tickers() {
    on_each_database(|db| async move {
        let clock = clock();
        recurring::define(&db.store, &clock, &hourly(MissedPolicy::RunOnce, OverlapPolicy::Allow)).await.unwrap();
        assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), TickReport::default());

        clock.advance(HOUR / 2);
        let reports = futures_util::future::join_all((0..3).map(|_| recurring::tick(&db.store, &clock, None))).await;

        let count: usize = reports.into_iter().map(|report| report.unwrap().fired.len()).sum();
        assert_eq!((count, live(&db.store.system()).await.len()), (1, 1));
        assert_eq!(get(&db.store).await.next_at, clock.now() + HOUR);
        let job = live(&db.store.system()).await.remove(0);
        assert_eq!((job.kind.as_str(), job.lane, Some(job.id)), ("noop", Lane::Low, get(&db.store).await.last_job));
    })
    .await;
}

#[tokio::test]
async fn missed_times_run_once_or_are_skipped() {
    on_each_database(|db| async move {
        let clock = clock();
        recurring::define(&db.store, &clock, &hourly(MissedPolicy::RunOnce, OverlapPolicy::Allow)).await.unwrap();

        clock.advance(5 * HOUR);
        assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), fired());
        assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), TickReport::default());
        recurring::define(&db.store, &clock, &hourly(MissedPolicy::Skip, OverlapPolicy::Allow)).await.unwrap();
        clock.advance(5 * HOUR);
        let skipped = TickReport { skipped: vec!["sweep".into()], ..TickReport::default() };
        assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), skipped);
        // A leader that is replaced is late by seconds; that is no miss.
        clock.advance(HOUR / 2 + Duration::from_secs(15));
        assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), fired());

        assert_eq!(live(&db.store.system()).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn runs_overlap_as_the_schedule_says() {
    for (overlap, ready, blocked) in
        [(OverlapPolicy::Skip, 1, 0), (OverlapPolicy::Allow, 3, 0), (OverlapPolicy::Queue, 1, 2)]
    {
        on_each_database(|db| async move {
            let clock = clock();
            recurring::define(&db.store, &clock, &hourly(MissedPolicy::RunOnce, overlap)).await.unwrap();
            for _ in 0..2 {
                clock.advance(HOUR);
                assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), fired());
            }
            let by_hand = recurring::run_now(&db.store, &clock, &get(&db.store).await).await.unwrap();
            assert_eq!(by_hand.is_none(), overlap == OverlapPolicy::Skip);

            let jobs = live(&db.store.system()).await;
            let counts =
                ["ready", "blocked"].map(|state| jobs.iter().filter(|job| job.state.as_str() == state).count());
            assert_eq!(counts, [ready, blocked], "{overlap:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn times_during_a_pause_are_not_missed() {
    on_each_database(|db| async move {
        let clock = clock();
        recurring::define(&db.store, &clock, &hourly(MissedPolicy::RunOnce, OverlapPolicy::Allow)).await.unwrap();
        db.store.system().pause_schedule(TenantId::SYSTEM, "sweep").await.unwrap();
        clock.advance(5 * HOUR);
        assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), TickReport::default());

        assert!(recurring::resume(&db.store, &clock, &get(&db.store).await).await.unwrap());

        assert_eq!(recurring::tick(&db.store, &clock, None).await.unwrap(), TickReport::default());
        assert_eq!(get(&db.store).await.next_at, clock.now() + HOUR / 2);
    })
    .await;
}

#[tokio::test]
async fn invalid_schedule_is_refused_or_left_alone() {
    on_each_database(|db| async move {
        let clock = clock();
        let good = hourly(MissedPolicy::RunOnce, OverlapPolicy::Allow);
        let bad_line = NewSchedule { cron: "0 25 * * *".into(), ..good.clone() };
        let bad_zone = NewSchedule { zone: "Europe/Atlantis".into(), ..good.clone() };
        let refused = recurring::define(&db.store, &clock, &bad_line).await.unwrap_err();
        assert!(refused.to_string().contains("column 3"), "{refused}");
        let refused = recurring::define(&db.store, &clock, &bad_zone).await;
        assert!(matches!(refused, Err(RecurringError::Zone(_))));
        assert!(db.store.system().list_schedules().await.unwrap().is_empty());

        // As a newer version may have written it.
        let newer = NewSchedule { name: "newer".into(), ..bad_line };
        db.store.system().put_schedule(&newer, clock.now()).await.unwrap();
        recurring::define(&db.store, &clock, &good).await.unwrap();
        clock.advance(HOUR);
        let ticked = recurring::tick(&db.store, &clock, None).await.unwrap();
        assert_eq!((ticked.fired.len(), ticked.unreadable), (1, vec!["newer".to_owned()]));
        assert_eq!(db.store.system().list_schedules().await.unwrap().len(), 2);
    })
    .await;
}

/// Makes the database refuse jobs of this kind.
async fn refuse_kind(db: &TestDatabase, kind: &str) {
    let sql = match db.location {
        Location::Sqlite { .. } => format!(
            "create trigger refuse before insert on jobs when new.kind = '{kind}'
             begin select raise(abort, 'not this kind'); end"
        ),
        Location::Postgres { .. } => format!("alter table jobs add constraint refuse check (kind <> '{kind}')"),
    };
    db.run(&sql).await;
}

#[tokio::test]
async fn failing_schedule_does_not_affect_others() {
    on_each_database(|db| async move {
        let clock = clock();
        let good = hourly(MissedPolicy::RunOnce, OverlapPolicy::Allow);
        // Both come before the good one.
        let bad = NewSchedule { name: "bad".into(), kind: "refused".into(), ..good.clone() };
        let newer = NewSchedule { name: "newer".into(), ..good.clone() };
        for schedule in [&bad, &newer, &good] {
            recurring::define(&db.store, &clock, schedule).await.unwrap();
        }
        db.run("update job_schedules set lane = 9 where name = 'newer'").await;
        refuse_kind(&db, "refused").await;
        clock.advance(HOUR);

        let ticked = recurring::tick(&db.store, &clock, None).await.unwrap();

        assert_eq!(ticked, TickReport { failed: vec!["bad".into()], ..fired() });
        let again = recurring::tick(&db.store, &clock, None).await.unwrap();
        assert_eq!(again, TickReport { failed: vec!["bad".into()], ..TickReport::default() }, "it stays due");
        // A lost lease fails the tick, not a schedule.
        let not_held = LeaseToken { name: "scheduler", token: 1 };
        let refused = recurring::tick(&db.store, &clock, Some(not_held)).await;
        assert!(matches!(refused, Err(RecurringError::Store(StoreError::Precondition(_)))), "{refused:?}");
    })
    .await;
}
