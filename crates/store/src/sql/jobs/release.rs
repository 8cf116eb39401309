//! Releases jobs that wait for a job that ends: its children, and the next of its ordering key.
//!
//! Adding to a key or to the children of a job locks the key's or the parent's row first, and so does the end of a job; and
//! the number of blockers of a job is in its own row. So no wake-up is lost, whichever comes first.

use domain::{JobId, TenantId};

use super::{FREE_STATE, PARENT_FAILED};
use crate::failpoint::{self, Guard};
use crate::sql::any;
use crate::{Dialect, OpId, Unit, Value, params};

/// Locks an ordering key before one of its jobs is changed. In the same order as for those that add to it: the key, then the
/// job.
pub(super) fn lock_key(unit: &mut Unit, tenant: TenantId, key: &str) {
    if failpoint::is_off(Guard::KeyLock) {
        return;
    }
    unit.op(
        "update job_keys set last_number = last_number where tenant_id = $1 and order_key = $2",
        params![tenant, key],
    );
}

/// Passes the key of a job that has ended to the next one, if the job was the head.
pub(super) fn release_key(unit: &mut Unit, tenant: TenantId, key: &str) {
    unit.op(
        format!(
            "update jobs set is_behind = false, blockers = blockers - 1, position = mailroom_micros(),
                state = case when blockers > 1 or state <> 'blocked' then state else {FREE_STATE} end
             where tenant_id = $1 and order_key = $2 and is_behind
               and order_number = (select min(order_number) from jobs where tenant_id = $1 and order_key = $2)"
        ),
        params![tenant, key],
    );
    drop_idle_key(unit, tenant, key);
}

/// Deletes a key that no job has.
pub(super) fn drop_idle_key(unit: &mut Unit, tenant: TenantId, key: &str) {
    unit.op(
        "delete from job_keys where tenant_id = $1 and order_key = $2
         and not exists (select 1 from jobs where tenant_id = $1 and order_key = $2)",
        params![tenant, key],
    );
}

/// Counts down the blockers of the children of done jobs. The children are locked first, so that of two parents that end at
/// once the second sees what the first did; and they are taken by ctid, so that no join is planned by outdated statistics of a
/// table that fills and empties all the time.
pub(super) fn release_children(unit: &mut Unit, dialect: Dialect, jobs: &[(TenantId, JobId)]) -> OpId {
    // Of a job's edges, those of parents that are gone are released here: older ones are deleted already.
    let released = format!(
        "(select count(*) from job_edges where job_edges.tenant_id = jobs.tenant_id and job_edges.child_id = jobs.id
          and {PARENT_IS_GONE})"
    );
    let update = format!(
        "update jobs set blockers = blockers - {released}, position = mailroom_micros(),
            state = case when blockers > {released} or state <> 'blocked' then state else {FREE_STATE} end"
    );
    match dialect {
        Dialect::Sqlite => {
            let parents: Vec<JobId> = jobs.iter().map(|(_, id)| *id).collect();
            let edges = format!("job_edges where {} and {PARENT_IS_GONE}", any(dialect, "parent_id", 1));
            let parents = Value::from(parents);
            let op = unit.op(format!("{update} where id in (select child_id from {edges})"), vec![parents.clone()]);
            unit.op(format!("delete from {edges}"), vec![parents]);
            op
        }
        Dialect::Postgres => {
            let params = vec![
                Value::List(jobs.iter().map(|(tenant, _)| (*tenant).into()).collect()),
                Value::List(jobs.iter().map(|(_, id)| (*id).into()).collect()),
            ];
            let edges = format!(
                "unnest($1::uuid[], $2::uuid[]) as g (tenant_id, id) cross join lateral (
                    select job_edges.ctid as row, tenant_id, child_id from job_edges
                    where tenant_id = g.tenant_id and parent_id = g.id and {PARENT_IS_GONE} offset 0) e"
            );
            let children =
                "select c.ctid as row from jobs c where c.tenant_id = e.tenant_id and c.id = e.child_id offset 0";
            unit.op(
                format!("select count(*) from {edges} cross join lateral ({children} for update) c"),
                params.clone(),
            );
            let rows = format!("select c.row from {edges} cross join lateral ({children}) c");
            let op = unit.op(format!("{update} where ctid = any(array({rows}))"), params.clone());
            unit.op(format!("delete from job_edges where ctid = any(array(select e.row from {edges}))"), params);
            op
        }
    }
}

/// Dooms the children of a job that did not succeed. They are cancelled one by one, later, because each has a key to release
/// and children of its own.
pub(super) fn mark_children_for_cancellation(unit: &mut Unit, tenant: TenantId, job: JobId) {
    let edges = format!("from job_edges where tenant_id = $1 and parent_id = $2 and {PARENT_IS_GONE}");
    unit.op(
        format!(
            "update jobs set state = 'doomed', cancel_reason = $3
             where tenant_id = $1 and id in (select child_id {edges}) and state = 'blocked'"
        ),
        params![tenant, job, PARENT_FAILED],
    );
    unit.op(format!("delete {edges}"), params![tenant, job]);
}

/// Whether the parent has really ended: its worker may have lost it.
const PARENT_IS_GONE: &str =
    "not exists (select 1 from jobs p where p.tenant_id = job_edges.tenant_id and p.id = job_edges.parent_id)";
