-- The durable queue. A live job is a row in `jobs`; when it ends it moves to `finished_jobs`, so that years of history cost a claim nothing.
-- Jobs of the system itself have the tenant 00000000-0000-0000-0000-000000000000.

-- Time as a number, for the order in which jobs became ready.
create function mailroom_micros() returns bigint language sql volatile
    as $$ select (extract(epoch from mailroom_now()) * 1000000)::bigint $$;

create table jobs (
    id uuid not null,
    tenant_id uuid not null,
    kind text not null,
    -- 0 critical, 1 high, 2 normal, 3 low.
    lane smallint not null check (lane between 0 and 3),
    -- scheduled: not due. blocked: behind a parent or the head of its ordering key. doomed: about to be cancelled, for a failed parent or by somebody's wish.
    state text not null check (state in ('scheduled', 'blocked', 'doomed', 'ready', 'running', 'retry')),
    -- When it became ready, in microseconds: its place in the order of its queue.
    position bigint not null,
    run_at timestamptz not null,
    payload jsonb not null,
    traceparent text,
    -- Grows with every claim; who completes the job must know it.
    token bigint not null default 0,
    worker uuid,
    started_at timestamptz,
    -- It was in a process that died, so it is now run with this mark set first: who dies with the mark is to blame.
    is_marked boolean not null default false,
    -- Attempts spent.
    attempt integer not null default 0,
    -- Deaths that it caused, and deaths that it merely was around for.
    abandoned integer not null default 0,
    suspected integer not null default 0,
    unique_key text,
    -- It was asked for again while it ran.
    rerun boolean not null default false,
    order_key text,
    order_number bigint,
    is_behind boolean not null default false,
    -- Parents that have not finished, and one more when it is not the head of its ordering key.
    blockers integer not null default 0,
    has_children boolean not null default false,
    -- Somebody wants it to end, and why.
    cancel_reason text,
    created_at timestamptz not null,
    primary key (tenant_id, id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
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
    id uuid not null,
    tenant_id uuid not null,
    kind text not null,
    lane smallint not null,
    state text not null check (state in ('done', 'dead', 'cancelled')),
    payload jsonb not null,
    traceparent text,
    token bigint not null,
    worker uuid,
    attempt integer not null,
    abandoned integer not null,
    -- Why it is dead or cancelled: the last error, without secrets, and what errors of its sort have in common.
    reason text,
    error_class text,
    fingerprint text,
    -- Taken up again when it is replayed.
    unique_key text,
    order_key text,
    created_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz not null,
    primary key (tenant_id, id)
);
create index finished_jobs_ended on finished_jobs using brin (ended_at) with (pages_per_range = 16, autosummarize = on);
create index finished_jobs_dead on finished_jobs (fingerprint, tenant_id, ended_at) where state = 'dead';

-- Only attempts that went wrong.
create table job_attempts (
    tenant_id uuid not null,
    job_id uuid not null,
    -- The token of the claim.
    token bigint not null,
    outcome text not null check (outcome in ('failed', 'panicked', 'timed_out', 'abandoned')),
    error_class text not null,
    message text not null,
    fingerprint text not null,
    worker uuid,
    started_at timestamptz,
    ended_at timestamptz not null,
    primary key (tenant_id, job_id, token)
);

-- What waits, by tenant, lane and kind, and how much of its share each tenant has had (`vtime`, in millionths of a job by weight 1).
create table job_queues (
    tenant_id uuid not null,
    lane smallint not null,
    kind text not null,
    waiting bigint not null default 0,
    vtime bigint not null default 0,
    -- Where claims begin to look: what stands before it is claimed, though an old snapshot may keep the rows alive.
    head bigint not null default 0,
    -- Whether anything waits. Apart from `waiting`, so that counting changes no index.
    is_active boolean not null default false,
    primary key (tenant_id, lane, kind)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index job_queues_active on job_queues (lane) where is_active;

-- Changes of `waiting` that nobody added up yet, so that whoever enqueues waits for nobody. A claim adds them up first.
-- Without a number of its own: a tenant could tell by it how much the others do.
create table job_arrivals (
    tenant_id uuid not null,
    lane smallint not null,
    kind text not null,
    change bigint not null,
    -- Where the first of them stands.
    oldest bigint not null,
    -- By which what came lately is found, though an old snapshot keeps what was added up alive.
    at bigint not null default mailroom_micros()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index job_arrivals_at on job_arrivals (at);

create table job_lanes (
    lane smallint primary key,
    name text not null unique,
    -- The share that tenants at work have had; who comes back from a rest begins here.
    clock bigint not null default 0,
    is_paused boolean not null default false
);
insert into job_lanes (lane, name) values (0, 'critical'), (1, 'high'), (2, 'normal'), (3, 'low');

create table job_kinds (
    kind text primary key,
    most_running bigint check (most_running > 0),
    is_paused boolean not null default false
);

create table job_tenants (
    tenant_id uuid primary key,
    most_running bigint check (most_running > 0),
    most_waiting bigint check (most_waiting > 0),
    is_paused boolean not null default false
);

-- How large a share each plan gets; changed at run time.
create table job_weights (
    plan_tier text primary key,
    weight bigint not null check (weight between 1 and 1000)
);
insert into job_weights (plan_tier, weight) values ('standard', 1), ('vip', 4);

-- One row per process that works. Its lease covers all that it runs.
create table job_workers (
    id uuid primary key,
    name text not null,
    kinds jsonb not null,
    lease_until timestamptz not null,
    started_at timestamptz not null,
    gone_at timestamptz
);

create table job_edges (
    tenant_id uuid not null,
    parent_id uuid not null,
    child_id uuid not null,
    primary key (tenant_id, parent_id, child_id)
);
create index job_edges_child on job_edges (tenant_id, child_id);

-- Whoever adds to an ordering key or takes from it locks its row first.
create table job_keys (
    tenant_id uuid not null,
    order_key text not null,
    last_number bigint not null,
    primary key (tenant_id, order_key)
);

create table job_schedules (
    name text not null,
    tenant_id uuid not null,
    kind text not null,
    lane smallint not null,
    payload jsonb not null,
    cron text not null,
    zone text not null,
    -- run_once: one run for all that were missed; skip: none.
    missed text not null check (missed in ('run_once', 'skip')),
    -- skip: not while the last one lives; allow: side by side; queue: one after the other.
    overlap text not null check (overlap in ('skip', 'allow', 'queue')),
    is_paused boolean not null default false,
    next_at timestamptz not null,
    last_at timestamptz,
    last_job uuid,
    updated_at timestamptz not null,
    primary key (tenant_id, name)
);

-- Who may act for all: the token grows with every change of holder and is checked by what the holder writes.
create table leases (
    name text primary key,
    holder text not null,
    token bigint not null,
    until timestamptz not null
);

-- What the built-in job `probe` leaves behind.
create table probe_effects (
    tenant_id uuid not null,
    job_id uuid not null,
    token bigint not null,
    at timestamptz not null,
    primary key (tenant_id, job_id, token)
);

-- The one place that counts what waits: whatever changes a job, by whichever hand, says so here.
create function mailroom_count_jobs() returns trigger language plpgsql as $$
begin
    -- A claim takes what it claims off the counts itself.
    if current_setting('mailroom.counts_itself', true) = 'yes' then
        return null;
    end if;
    if tg_op = 'INSERT' then
        insert into job_arrivals (tenant_id, lane, kind, change, oldest)
        select tenant_id, lane, kind, count(*), min(position) from new_jobs where state = 'ready' group by tenant_id, lane, kind;
    elsif tg_op = 'DELETE' then
        insert into job_arrivals (tenant_id, lane, kind, change, oldest)
        select tenant_id, lane, kind, -count(*), min(position) from old_jobs where state = 'ready' group by tenant_id, lane, kind;
    else
        insert into job_arrivals (tenant_id, lane, kind, change, oldest)
        select tenant_id, lane, kind, sum(change), min(position)
        from (select tenant_id, lane, kind, 1 as change, position from new_jobs where state = 'ready'
              union all select tenant_id, lane, kind, -1, position from old_jobs where state = 'ready') changed
        group by tenant_id, lane, kind having sum(change) <> 0;
    end if;
    return null;
end $$;
create trigger jobs_added after insert on jobs referencing new table as new_jobs for each statement execute function mailroom_count_jobs();
create trigger jobs_changed after update on jobs referencing old table as old_jobs new table as new_jobs
    for each statement execute function mailroom_count_jobs();
create trigger jobs_removed after delete on jobs referencing old table as old_jobs for each statement execute function mailroom_count_jobs();
