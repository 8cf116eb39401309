//! Invariants of the queue's rows, whenever no transaction is in progress.

use store::Dialect;
use store::testing::TestDatabase;

/// Queries that find rows which violate an invariant.
const VIOLATIONS: &[(&str, &str)] = &[
    (
        "what waits is counted",
        "select coalesce(q.tenant_id, j.tenant_id), q.waiting, j.ready from job_queues q
         full join (select tenant_id, lane, kind, count(*) as ready from jobs where state = 'ready'
                    group by tenant_id, lane, kind) j
         on j.tenant_id = q.tenant_id and j.lane = q.lane and j.kind = q.kind
         where coalesce(q.waiting, 0) <> coalesce(j.ready, 0)",
    ),
    (
        "a job is in one place",
        "select j.id from jobs j join finished_jobs f on f.tenant_id = j.tenant_id and f.id = j.id",
    ),
    (
        "a job knows what holds it back",
        "select id, state, blockers, is_behind from jobs j
         where blockers <> (select count(*) from job_edges e where e.tenant_id = j.tenant_id and e.child_id = j.id)
                         + case when is_behind then 1 else 0 end
           and state <> 'doomed'",
    ),
    (
        "only what is held back is blocked",
        "select id, state, blockers from jobs where (state = 'blocked') <> (blockers > 0) and state <> 'doomed'",
    ),
    (
        "all but the first of an ordering key are behind it",
        "select id, order_key, order_number, is_behind from jobs j where order_key is not null
         and is_behind <> exists (select 1 from jobs b where b.tenant_id = j.tenant_id and b.order_key = j.order_key
                                  and b.order_number < j.order_number)",
    ),
    (
        "an ordering key numbers its jobs once",
        "select order_key, order_number from jobs where order_key is not null
         group by tenant_id, order_key, order_number having count(*) > 1",
    ),
    (
        "a parent is live",
        "select e.parent_id from job_edges e
         where not exists (select 1 from jobs p where p.tenant_id = e.tenant_id and p.id = e.parent_id)",
    ),
    (
        "a key has jobs",
        "select order_key from job_keys k where not exists (
             select 1 from jobs j where j.tenant_id = k.tenant_id and j.order_key = k.order_key)",
    ),
    (
        "a job with a key has the row of the key",
        "select id, order_key from jobs j where order_key is not null and not exists (
             select 1 from job_keys k where k.tenant_id = j.tenant_id and k.order_key = j.order_key)",
    ),
    (
        "what runs has a worker, and only that",
        "select id, state from jobs where (state = 'running') <> (worker is not null)",
    ),
    (
        "a unique key is unique",
        "select unique_key from jobs where unique_key is not null and state <> 'doomed' group by tenant_id, kind, unique_key having count(*) > 1",
    ),
];

/// Where claims begin to look must not be behind what they should find.
const HEADS: (&str, &str) = (
    "a claim begins to look before the first that waits",
    "select j.id, j.position, q.head from jobs j
     join job_queues q on q.tenant_id = j.tenant_id and q.lane = j.lane and q.kind = j.kind
     where j.state = 'ready' and j.position < q.head",
);

/// Fails with what is wrong, if anything is.
pub async fn assert_invariants(db: &TestDatabase, when: &str) {
    db.store.system().count_arrivals().await.unwrap();
    let heads = (db.store.dialect() == Dialect::Postgres).then_some(&HEADS);
    let claims: Vec<_> = VIOLATIONS.iter().chain(heads).collect();
    let counts: Vec<String> = claims
        .iter()
        .enumerate()
        .map(|(n, (_, sql)): (usize, &&(&str, &str))| format!("select {n}, count(*) from ({sql}) wrong_{n}"))
        .collect();
    for row in db.rows(&counts.join(" union all ")).await {
        let (n, wrong): (u64, u64) = (row.get(0).unwrap(), row.get(1).unwrap());
        if wrong > 0 {
            let (claim, sql) = claims[usize::try_from(n).unwrap()];
            panic!("{when}: not so: {claim}: {:?}", db.rows(sql).await);
        }
    }
}
