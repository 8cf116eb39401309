-- The durable queue. A live job is a row in `jobs`; when it ends it moves to `finished_jobs`, so that years of history cost a claim nothing.
-- Jobs of the system itself have the tenant 00000000-0000-0000-0000-000000000000.

create table jobs (
    id text not null,
    tenant_id text not null,
    kind text not null,
    -- 0 critical, 1 high, 2 normal, 3 low.
    lane integer not null check (lane between 0 and 3),
    -- scheduled: not due. blocked: behind a parent or the head of its ordering key. doomed: about to be cancelled, for a failed parent or by somebody's wish.
    state text not null check (state in ('scheduled', 'blocked', 'doomed', 'ready', 'running', 'retry')),
    -- When it became ready, in microseconds: its place in the order of its queue.
    position integer not null,
    run_at text not null,
    payload text not null,
    traceparent text,
    -- Grows with every claim; who completes the job must know it.
    token integer not null default 0,
    worker text,
    started_at text,
    -- It was in a process that died, so it is now run with this mark set first: who dies with the mark is to blame.
    is_marked integer not null default 0,
    -- Attempts spent.
    attempt integer not null default 0,
    -- Deaths that it caused, and deaths that it merely was around for.
    abandoned integer not null default 0,
    suspected integer not null default 0,
    unique_key text,
    -- It was asked for again while it ran.
    rerun integer not null default 0,
    order_key text,
    order_number integer,
    is_behind integer not null default 0,
    -- Parents that have not finished, and one more when it is not the head of its ordering key.
    blockers integer not null default 0,
    has_children integer not null default 0,
    -- Somebody wants it to end, and why.
    cancel_reason text,
    created_at text not null,
    primary key (id)
) without rowid;
create index jobs_ready on jobs (tenant_id, lane, kind, position, id) where state = 'ready';
create index jobs_due on jobs (run_at) where state in ('scheduled', 'retry');
create index jobs_running on jobs (tenant_id, kind) where state = 'running';
create index jobs_worker on jobs (worker) where state = 'running';
create index jobs_doomed on jobs (id) where state = 'doomed';
create index jobs_blocked on jobs (tenant_id, id) where state = 'blocked';
-- What is about to be cancelled gives its key up: who asks for the same then gets a job of its own.
create unique index jobs_unique_key on jobs (tenant_id, kind, unique_key) where unique_key is not null and state <> 'doomed';
create index jobs_order_key on jobs (tenant_id, order_key, order_number) where order_key is not null;

create table finished_jobs (
    id text not null,
    tenant_id text not null,
    kind text not null,
    lane integer not null,
    state text not null check (state in ('done', 'dead', 'cancelled')),
    payload text not null,
    traceparent text,
    token integer not null,
    worker text,
    attempt integer not null,
    abandoned integer not null,
    -- Why it is dead or cancelled: the last error, without secrets, and what errors of its sort have in common.
    reason text,
    error_class text,
    fingerprint text,
    -- Taken up again when it is replayed.
    unique_key text,
    order_key text,
    created_at text not null,
    started_at text,
    ended_at text not null,
    primary key (id)
) without rowid;
create index finished_jobs_ended on finished_jobs (ended_at);
create index finished_jobs_dead on finished_jobs (fingerprint, tenant_id, ended_at) where state = 'dead';

-- Only attempts that went wrong.
create table job_attempts (
    tenant_id text not null,
    job_id text not null,
    -- The token of the claim.
    token integer not null,
    outcome text not null check (outcome in ('failed', 'panicked', 'timed_out', 'abandoned')),
    error_class text not null,
    message text not null,
    fingerprint text not null,
    worker text,
    started_at text,
    ended_at text not null,
    primary key (tenant_id, job_id, token)
);

-- What waits, by tenant, lane and kind, and how much of its share each tenant has had (`vtime`, in millionths of a job by weight 1).
create table job_queues (
    tenant_id text not null,
    lane integer not null,
    kind text not null,
    waiting integer not null default 0,
    vtime integer not null default 0,
    primary key (tenant_id, lane, kind)
) without rowid;
create index job_queues_active on job_queues (lane, vtime) where waiting > 0;

create table job_lanes (
    lane integer primary key,
    name text not null unique,
    -- The share that tenants at work have had; who comes back from a rest begins here.
    clock integer not null default 0,
    is_paused integer not null default 0
);
insert into job_lanes (lane, name) values (0, 'critical'), (1, 'high'), (2, 'normal'), (3, 'low');

create table job_kinds (
    kind text primary key,
    most_running integer check (most_running > 0),
    is_paused integer not null default 0
);

create table job_tenants (
    tenant_id text primary key,
    most_running integer check (most_running > 0),
    most_waiting integer check (most_waiting > 0),
    is_paused integer not null default 0
);

-- How large a share each plan gets; changed at run time.
create table job_weights (
    plan_tier text primary key,
    weight integer not null check (weight between 1 and 1000)
);
insert into job_weights (plan_tier, weight) values ('standard', 1), ('vip', 4);

-- One row per process that works. Its lease covers all that it runs.
create table job_workers (
    id text primary key,
    name text not null,
    kinds text not null,
    lease_until text not null,
    started_at text not null,
    gone_at text
);

create table job_edges (
    tenant_id text not null,
    parent_id text not null,
    child_id text not null,
    primary key (parent_id, child_id)
) without rowid;
create index job_edges_child on job_edges (tenant_id, child_id);

-- Whoever adds to an ordering key or takes from it locks its row first.
create table job_keys (
    tenant_id text not null,
    order_key text not null,
    last_number integer not null,
    primary key (tenant_id, order_key)
);

create table job_schedules (
    name text not null,
    tenant_id text not null,
    kind text not null,
    lane integer not null,
    payload text not null,
    cron text not null,
    zone text not null,
    -- run_once: one run for all that were missed; skip: none.
    missed text not null check (missed in ('run_once', 'skip')),
    -- skip: not while the last one lives; allow: side by side; queue: one after the other.
    overlap text not null check (overlap in ('skip', 'allow', 'queue')),
    is_paused integer not null default 0,
    next_at text not null,
    last_at text,
    last_job text,
    updated_at text not null,
    primary key (tenant_id, name)
);

-- Who may act for all: the token grows with every change of holder and is checked by what the holder writes.
create table leases (
    name text primary key,
    holder text not null,
    token integer not null,
    until text not null
);

-- What the built-in job `probe` leaves behind.
create table probe_effects (
    tenant_id text not null,
    job_id text not null,
    token integer not null,
    at text not null,
    primary key (tenant_id, job_id, token)
);

-- The one place that counts what waits: whatever changes a job, by whichever hand, says so here. A queue that was empty begins where
-- the last of those is that have work of its kind, or else at its lane's clock, so that nobody saves up shares.
-- Whoever adds many at once counts them by itself and says so by a row here meanwhile: a trigger for each takes a third of the time.
create table job_counting (queue text primary key) without rowid;
create trigger jobs_added after insert on jobs when new.state = 'ready' and not exists (select 1 from job_counting)
begin
    insert into job_queues (tenant_id, lane, kind, waiting, vtime)
    values (new.tenant_id, new.lane, new.kind, 1, coalesce((select min(vtime) from job_queues where lane = new.lane and kind = new.kind and waiting > 0),
                 (select clock from job_lanes where lane = new.lane)))
    on conflict (tenant_id, lane, kind) do update set waiting = waiting + 1,
        vtime = case when waiting > 0 then vtime else max(vtime, excluded.vtime) end;
end;
create trigger jobs_became_ready after update of state, lane on jobs
    when new.state = 'ready' and (old.state <> 'ready' or old.lane <> new.lane)
begin
    insert into job_queues (tenant_id, lane, kind, waiting, vtime)
    values (new.tenant_id, new.lane, new.kind, 1, coalesce((select min(vtime) from job_queues where lane = new.lane and kind = new.kind and waiting > 0),
                 (select clock from job_lanes where lane = new.lane)))
    on conflict (tenant_id, lane, kind) do update set waiting = waiting + 1,
        vtime = case when waiting > 0 then vtime else max(vtime, excluded.vtime) end;
end;
create trigger jobs_left_ready after update of state, lane on jobs
    when old.state = 'ready' and (new.state <> 'ready' or old.lane <> new.lane)
begin
    update job_queues set waiting = waiting - 1 where tenant_id = old.tenant_id and lane = old.lane and kind = old.kind;
end;
create trigger jobs_removed after delete on jobs when old.state = 'ready'
begin
    update job_queues set waiting = waiting - 1 where tenant_id = old.tenant_id and lane = old.lane and kind = old.kind;
end;
