-- Search goes round row security: the text operators are not leakproof, so under a policy PostgreSQL does not use the text index for them.
-- The function runs as mailroom_system, whose policy is plainly `true`, and looks at the transaction's tenant only, which is no argument.

-- The lowest id that an email received at this time can have.
create or replace function mailroom_id_at(received_at timestamptz) returns uuid language sql immutable strict as $$
    select rpad(lpad(to_hex(least(greatest(ceil(extract(epoch from received_at) * 1000), 0), 281474976710655)::bigint), 12, '0'), 32, '0')::uuid
$$;

create or replace function mailroom_received_at(id uuid) returns timestamptz language sql immutable strict as $$
    select to_timestamp(('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint / 1000.0)
$$;

-- Ids of live emails, newest first. Every text is bound, none becomes SQL. Planned for its values each time, and from the newest months
-- back to the oldest, so that a page of recent mail opens few partitions. Volatile, though it changes nothing: a stable function would look
-- at the partitions of now with the caller's snapshot, and not find rows that were moved in between.
create or replace function mailroom_search(
    words text, mailbox uuid, since timestamptz, until timestamptz, labels text[], not_labels text[], start_id uuid, is_start_found boolean,
    most bigint
) returns setof uuid language plpgsql volatile security definer as $$
declare
    tenant uuid := nullif(current_setting('mailroom.tenant', true), '')::uuid;
    matching tsquery := format('%L', ':tenant:' || replace(tenant::text, '-', ''))::tsquery && words::tsquery;
    labelled text := 'exists (select 1 from placements p join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
        where p.tenant_id = s.tenant_id and p.email_id = s.email_id and p.is_live
          and (f.name_key = %1$s or f.last_segment_key = %1$s))';
    condition text := 's.tenant_id = $1 and s.is_live';
    statement text;
    newest timestamptz := least(coalesce(mailroom_received_at(start_id), mailroom_now()), until);
    reach interval;
    upper uuid := mailroom_id_at(until);
    lower uuid;
    oldest uuid := mailroom_id_at(since);
    found bigint;
begin
    if tenant is null then
        return;
    end if;
    if words is not null then
        condition := condition || ' and s.tokens @@ $2';
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
    foreach reach in array array[interval '1 month', interval '1 year', interval '6 years', null] loop
        -- An email's id begins with its receive time, so times give ranges of ids, and those give partitions.
        lower := greatest(mailroom_id_at(date_trunc('month', newest - reach, 'UTC')), oldest);
        statement := condition
            || case when upper is not null then ' and s.email_id < $9' else '' end
            || case when lower is not null then ' and s.email_id >= $10' else '' end;
        return query execute 'select s.email_id from email_search s where ' || statement || ' order by s.email_id desc limit $11'
            using tenant, matching, mailbox, since, until, labels, not_labels, start_id, upper, lower, most;
        get diagnostics found = row_count;
        most := most - found;
        exit when most <= 0 or lower is not distinct from oldest;
        upper := lower;
    end loop;
end $$;

do $$
begin
    -- Nothing of the caller's can stand in for our tables and functions.
    execute format('alter function mailroom_search set search_path = %I, pg_temp', current_schema());
    revoke all on function mailroom_search, mailroom_id_at, mailroom_received_at from public;
    grant execute on function mailroom_search to mailroom_tenant;
end $$;
