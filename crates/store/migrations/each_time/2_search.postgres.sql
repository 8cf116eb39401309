-- Search goes round row security: the text operators are not leakproof, so under a policy PostgreSQL does not use the text index for them.
-- The function runs as mailroom_system, whose policy is plainly `true`, and looks at the transaction's tenant only, which is no argument.

-- The lowest id that an email received at this time can have.
create or replace function mailroom_id_at(received_at timestamptz) returns uuid language sql immutable strict as $$
    select rpad(lpad(to_hex(least(greatest(ceil(extract(epoch from received_at) * 1000), 0), 281474976710655)::bigint), 12, '0'), 32, '0')::uuid
$$;

create or replace function mailroom_received_at(id uuid) returns timestamptz language sql immutable strict as $$
    select to_timestamp(('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint / 1000.0)
$$;

-- Ids of emails that are deleted, are not, or both (null), newest first. Every text is bound, none becomes SQL. Planned for its values each time, and from the newest mail
-- back to the oldest, so that a page of recent mail opens few partitions. Volatile, though it changes nothing: a stable function would look
-- at the partitions of now with the caller's snapshot, and not find rows that were moved in between.
create or replace function mailroom_find_emails(
    words text, mailbox uuid, since timestamptz, until timestamptz, labels text[], not_labels text[], start_id uuid, is_start_found boolean,
    most bigint, is_live boolean
) returns setof uuid language plpgsql volatile security definer
-- Starting workers takes longer than most searches. The cost is the server's default, stated so that what is set below ends with the call.
set max_parallel_workers_per_gather = 0 set cpu_tuple_cost = 0.01 as $$
declare
    tenant uuid := nullif(current_setting('mailroom.tenant', true), '')::uuid;
    matching tsquery := format('%L', ':tenant:' || replace(tenant::text, '-', ''))::tsquery && words::tsquery;
    labelled text := 'exists (select 1 from placements p join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
        where p.tenant_id = s.tenant_id and p.email_id = s.email_id and p.is_live
          and (f.name_key = %1$s or f.last_segment_key = %1$s))';
    condition text := 's.tenant_id = $1' || case when is_live then ' and s.is_live' when not is_live then ' and not s.is_live' else '' end;
    upper uuid := mailroom_id_at(until);
    oldest uuid := mailroom_id_at(since);
    lower uuid;
    is_default_used boolean := false;
    froms uuid[];
    tos uuid[];
    most_opened integer;
    many integer;
    first integer := 1;
    last integer;
    found bigint;
begin
    if tenant is null then
        return;
    end if;
    if words is not null then
        condition := condition || ' and s.tokens @@ $2';
        -- Walking back through the ids looks cheap to the planner, but for each row passed over the tokens are fetched and unpacked, which
        -- takes as long as several pages. Without words nothing is unpacked.
        perform set_config('cpu_tuple_cost', '5', true);
    end if;
    if mailbox is not null then
        condition := condition || ' and s.mailbox_id = $3';
    end if;
    if since is not null then
        condition := condition || ' and s.received_at >= $4';
    end if;
    if until is not null then
        condition := condition || ' and s.received_at < $5';
    end if;
    for n in 1 .. coalesce(array_length(labels, 1), 0) loop
        condition := condition || ' and ' || format(labelled, '($6)[' || n || ']');
    end loop;
    for n in 1 .. coalesce(array_length(not_labels, 1), 0) loop
        condition := condition || ' and not ' || format(labelled, '($7)[' || n || ']');
    end loop;
    if start_id is not null then
        condition := condition || case when is_start_found then ' and s.email_id <= $8' else ' and s.email_id < $8' end;
    end if;
    -- Looked at before the partitions are listed: what was moved out of it until then went to one that is in the list.
    if pg_relation_size('email_search_default') > 0 then
        lock table only email_search in access share mode; -- the parent first, in the order of the upkeep
        is_default_used := exists (select from email_search_default);
    end if;
    -- Planning a scan takes longer than scanning nothing, so partitions without a page are left out: months to come, and years without mail.
    -- Their bounds read `FOR VALUES FROM ('…') TO ('…')`, from MINVALUE in the first; taken by place, which is twice as fast as by pattern.
    select array_agg(used.from_id order by used.to_id desc), array_agg(used.to_id order by used.to_id desc) into froms, tos
    from (select case when substr(part.bounds, 18, 1) = '''' then substr(part.bounds, 19, 36)::uuid end as from_id,
                 left(right(part.bounds, 38), 36)::uuid as to_id
          from (select (select pg_get_expr(c.relpartbound, c.oid) from pg_class c where c.oid = i.inhrelid) as bounds
                from pg_inherits i
                where i.inhparent = 'email_search'::regclass and pg_relation_size(i.inhrelid) > 0
                offset 0) part -- so that each is asked for its bounds once
          where part.bounds <> 'DEFAULT'
          offset 0) used
    where used.to_id > coalesce(oldest, '00000000-0000-0000-0000-000000000000')
      and (used.from_id is null or used.from_id <= coalesce(least(upper, start_id), used.from_id));
    many := coalesce(cardinality(tos), 0);
    -- The newest two hold the last month at least; whoever finds too little there goes on with a year, and then with more at a time.
    foreach most_opened in array array[2, 12, 60, 10000] loop
        exit when first > many and not is_default_used;
        last := least(first + most_opened - 1, many);
        if not is_default_used then
            upper := least(upper, tos[first]);
        end if;
        -- What the default partition holds can belong between any two others, and before and after all of them.
        lower := case when is_default_used and last = many then oldest else greatest(froms[last], oldest) end;
        return query execute 'select s.email_id from email_search s where ' || condition
            || case when upper is not null then ' and s.email_id < $9' else '' end
            || case when lower is not null then ' and s.email_id >= $10' else '' end
            || ' order by s.email_id desc limit $11'
            using tenant, matching, mailbox, since, until, labels, not_labels, start_id, upper, lower, most;
        get diagnostics found = row_count;
        most := most - found;
        exit when most <= 0 or last = many;
        first := last + 1;
        upper := lower;
    end loop;
end $$;

-- The same for processes of the version before, which run until they are replaced.
create or replace function mailroom_search(
    words text, mailbox uuid, since timestamptz, until timestamptz, labels text[], not_labels text[], start_id uuid, is_start_found boolean,
    most bigint
) returns setof uuid language sql volatile as $$
    select mailroom_find_emails(words, mailbox, since, until, labels, not_labels, start_id, is_start_found, most, true)
$$;

-- Where emails are and what they are marked with. Runs with the rights of its caller; a function because its plan lasts, whatever the ids.
create or replace function mailroom_places(ids uuid[]) returns table (email_id uuid, folder text, flags jsonb) language plpgsql volatile
set plan_cache_mode = force_generic_plan as $$
declare
    tenant uuid := nullif(current_setting('mailroom.tenant', true), '')::uuid;
begin
    return query
        select p.email_id, f.name, p.flags from placements p join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
        where p.tenant_id = tenant and p.is_live and p.email_id = any(ids) order by f.name;
end $$;

do $$
begin
    -- Nothing of the caller's can stand in for our tables and functions.
    execute format('alter function mailroom_find_emails set search_path = %I, pg_temp', current_schema());
    revoke all on function mailroom_find_emails, mailroom_search, mailroom_places, mailroom_id_at, mailroom_received_at from public;
    grant execute on function mailroom_find_emails, mailroom_search, mailroom_places to mailroom_tenant;
end $$;
