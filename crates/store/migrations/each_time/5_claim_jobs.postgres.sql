-- Claiming jobs. Functions, because their plans last as long as a session, whoever of PgBouncer's clients has it: planning the two takes
-- longer than carrying them out. They run with the rights of their caller, who is always the system.
--
-- A plan may be made while the tables are empty and used when they are full, so what may be chosen is what is right at any size: an index
-- wherever there is one, in its order. The costs that this pretends would have everything compiled, which takes far longer than running it.

-- In each lane, the `most` queues that have had least of their share, for these kinds of work. Paused ones are not among them.
create or replace function mailroom_job_candidates(
    kinds text[], most bigint, out tenant_id uuid, out lane smallint, out kind text, out waiting bigint, out vtime bigint, out weight bigint,
    out tenant_room bigint, out kind_room bigint
) returns setof record language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
    select placed.tenant_id, placed.lane, placed.kind, placed.waiting, placed.vtime, placed.weight, placed.tenant_room, placed.kind_room from (
        select *, row_number() over (
            -- Who is at a limit takes no place from others, though its share stays small and it comes first.
            partition by lane, coalesce(tenant_room, 1) > 0 and coalesce(kind_room, 1) > 0
            order by vtime, tenant_id, kind) as place
        from (
            select q.tenant_id, q.lane, q.kind, q.waiting, q.vtime, coalesce(w.weight, 1) as weight,
                   -- Only what has a limit is counted, and never more runs than there are workers.
                   case when t.most_running is not null then t.most_running - (
                       select count(*) from jobs j where j.state = 'running' and j.tenant_id = q.tenant_id) end as tenant_room,
                   case when k.most_running is not null then k.most_running - (
                       select count(*) from jobs j where j.state = 'running' and j.kind = q.kind) end as kind_room
            from job_queues q
            join job_lanes l on l.lane = q.lane and not l.is_paused
            left join job_tenants t on t.tenant_id = q.tenant_id
            left join job_kinds k on k.kind = q.kind
            left join tenants n on n.id = q.tenant_id
            left join job_weights w on w.plan_tier = n.plan_tier
            where q.is_active and q.waiting > 0 and q.kind = any(kinds)
              and not coalesce(t.is_paused, false) and not coalesce(k.is_paused, false) and coalesce(n.is_active, true)
        ) open
    ) placed where placed.place <= most;
end $$;

-- One statement: it locks the queues that nobody else is taking from, takes from each in order, and moves their shares.
create or replace function mailroom_claim_jobs(
    for_worker uuid, tenants uuid[], lanes bigint[], kinds text[], takes bigint[], costs bigint[], vtimes bigint[], has_limits boolean
) returns setof jobs language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
begin
    -- It counts what it takes itself, at once and in the rows that it has anyway.
    perform set_config('mailroom.counts_itself', 'yes', true);
    return query
    with wanted as (
        select * from unnest(tenants, lanes, kinds, takes, costs, vtimes) as w (tenant_id, lane, kind, take, cost, vtime)),
    locked as materialized (
        select q.tenant_id, q.lane, q.kind, q.head, q.ctid as version, w.take, w.cost, w.vtime from job_queues q
        join wanted w on w.tenant_id = q.tenant_id and w.lane = q.lane and w.kind = q.kind
        for no key update of q skip locked),
    picked as materialized (
        select j.tenant_id, j.id, j.row, l.lane, l.kind, j.position from locked l cross join lateral (
            select tenant_id, id, ctid as row, position from jobs
            where tenant_id = l.tenant_id and lane = l.lane and kind = l.kind and state = 'ready' and position >= l.head
            order by position, id limit l.take for update skip locked) j),
    -- Limits are counted here, where no other claim of limited work can come between.
    tenant_rooms as materialized (
        select t.tenant_id, t.most_running - (
            select count(*) from jobs j where j.state = 'running' and j.tenant_id = t.tenant_id) as room
        from job_tenants t where t.most_running is not null and t.tenant_id = any(tenants)),
    kind_rooms as materialized (
        select k.kind, k.most_running - (select count(*) from jobs j where j.state = 'running' and j.kind = k.kind) as room
        from job_kinds k where k.most_running is not null and k.kind = any(kinds)),
    numbered as (
        select p.*, row_number() over (partition by tenant_id order by lane, position, id) as of_tenant,
               row_number() over (partition by kind order by lane, position, id) as of_kind
        from picked p),
    allowed as (
        select p.row from picked p where not has_limits
        union all
        select n.row from numbered n
        left join tenant_rooms t on t.tenant_id = n.tenant_id left join kind_rooms k on k.kind = n.kind
        where has_limits and n.of_tenant <= coalesce(t.room, n.of_tenant) and n.of_kind <= coalesce(k.room, n.of_kind)),
    taken as (
        update jobs j set state = 'running', token = token + 1, worker = for_worker, started_at = mailroom_now(), rerun = false
        -- By where the rows are: whatever the planner believes about a table that fills and empties, no join goes wrong.
        where j.ctid = any(array(select p.row from allowed p))
        returning j.*),
    -- What was taken of each queue stands beside it: sorted together, for a join would be planned for a handful of queues.
    side_by_side as (
        select tenant_id, lane, kind, head, version, cost, vtime, 0 as taken from locked
        union all
        select tenant_id, lane, kind, null, null, null, null, count(*) from taken group by tenant_id, lane, kind),
    served as materialized (
        select * from (
            select *, sum(taken) over (partition by tenant_id, lane, kind) as of_queue,
                   sum(taken) over (partition by tenant_id, lane) as of_tenant
            from side_by_side) s
        where s.version is not null and s.of_tenant > 0),
    moved as (
        update job_queues q set vtime = greatest(q.vtime, s.vtime) + (s.cost * s.of_tenant)::bigint,
               waiting = q.waiting - s.of_queue, is_active = q.waiting > s.of_queue,
               -- The first that stood in a queue, also if it was passed over because somebody was changing it. What was counted after
               -- this statement began is not seen by it, though the queue may be locked as it was left by that: then its head stays.
               head = coalesce((
                   select first.position from job_queues seen cross join lateral (
                       select position from jobs where tenant_id = s.tenant_id and lane = s.lane and kind = s.kind and state = 'ready'
                           and position >= s.head order by position, id limit 1) first
                   where seen.tenant_id = s.tenant_id and seen.lane = s.lane and seen.kind = s.kind and seen.ctid = s.version), q.head)
        from served s
        where q.tenant_id = s.tenant_id and q.lane = s.lane and q.kind = s.kind),
    ticked as (
        update job_lanes set clock = n.clock
        from (select lane, max(vtime) as clock from served group by lane) n
        -- Never waited for: a clock that is a moment late harms nobody.
        cross join lateral (select from job_lanes l where l.lane = n.lane and l.clock < n.clock for update skip locked) free
        where job_lanes.lane = n.lane and job_lanes.clock < n.clock)
    select * from taken;
end $$;

revoke all on function mailroom_job_candidates, mailroom_claim_jobs from public;
