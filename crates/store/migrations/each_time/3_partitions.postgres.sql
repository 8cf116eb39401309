-- Partitions of emails and their parts, all four cut at the same ids: by month for the last two years and three months ahead, by year
-- before, one for everything before 1990, and a default one that is emptied here.

-- The partitions there are: what follows the table's name in theirs, and the ids they take. No lower bound: from the beginning.
create or replace function mailroom_partitions(out suffix text, out from_id uuid, out to_id uuid) returns setof record language sql stable as $$
    select substr(c.relname, length('emails_') + 1),
           substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM \(''([^'']+)''\)')::uuid,
           substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \(''([^'']+)''\)')::uuid
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'emails'::regclass and c.relname <> 'emails_default'
$$;

-- The range that should take emails received at this time: its month if that is recent, else its year, as far as both are free.
create or replace function mailroom_partition_for(received_at timestamptz, out suffix text, out from_id uuid, out to_id uuid)
language plpgsql stable as $$
declare
    place timestamp := received_at at time zone 'UTC';
    this_month timestamp := date_trunc('month', mailroom_now() at time zone 'UTC');
    first_month timestamp := this_month - interval '24 months';
    after_months timestamp := this_month + interval '4 months';
    is_recent boolean := place >= first_month and place < after_months;
    unit text := case when is_recent then 'month' else 'year' end;
    first timestamp := date_trunc(unit, place);
    id uuid := mailroom_id_at(received_at);
begin
    suffix := to_char(first, case when is_recent then 'YYYY_MM' else 'FMYYYY' end);
    from_id := mailroom_id_at(first at time zone 'UTC');
    to_id := mailroom_id_at((first + ('1 ' || unit)::interval) at time zone 'UTC');
    -- A year ends where months begin, whether they are there already or about to be made.
    if place < first_month then
        to_id := least(to_id, mailroom_id_at(first_month at time zone 'UTC'));
    elsif place >= after_months then
        from_id := greatest(from_id, mailroom_id_at(after_months at time zone 'UTC'));
    end if;
    -- And a month or year takes only what is free, for instance after a long pause.
    from_id := greatest(from_id, (select before.to_id from mailroom_partitions() before where before.to_id <= id order by before.to_id desc limit 1));
    to_id := least(to_id, (select next.from_id from mailroom_partitions() next where next.from_id > id order by next.from_id limit 1));
    if from_id <> mailroom_id_at(first at time zone 'UTC') then
        suffix := suffix || to_char(mailroom_received_at(from_id) at time zone 'UTC', '"_from_"MMDD');
    end if;
end $$;

-- What is missing: months ahead and back, the floor, what is about to come in, and whatever the default partition holds.
create or replace function mailroom_missing_partitions(expected uuid[]) returns setof timestamptz language sql stable as $$
    with there as materialized (select * from mailroom_partitions())
    select wanted.at
    from (select date_trunc('month', mailroom_now(), 'UTC') + make_interval(months => n) from generate_series(-24, 3) n
          union select '1989-12-31T00:00:00Z'
          union select date_trunc('month', mailroom_received_at(e.id), 'UTC') from unnest(expected) e (id)
          union select date_trunc('month', mailroom_received_at(e.id), 'UTC') from emails_default e) wanted (at)
    where not exists (select from there
                      where (there.from_id is null or there.from_id <= mailroom_id_at(wanted.at)) and mailroom_id_at(wanted.at) < there.to_id)
    order by 1
$$;

-- Keeps everybody else off the four tables and their default partitions, in the order in which an ingest unit takes them; `blobs` and
-- `mailboxes` because a new partition brings its foreign keys along. The parents too: a reader holds its parent from before it looks up the
-- partitions, and takes its snapshot after the last lock. Had we only the default partition, a reader that waits for that would go on with
-- partitions from before the move and a snapshot from after it, and not find what was moved. Never waits long: a reader that takes them in
-- another order must not become a deadlock (a server looks for those after a second), and who queued behind us goes before our next try.
create or replace function mailroom_lock_for_partitions(tries integer) returns boolean language plpgsql as $$
begin
    for try in 1 .. tries loop
        begin
            perform set_config('lock_timeout', '300ms', true);
            lock table blobs, mailboxes in share row exclusive mode;
            lock table only emails, only email_recipients, only attachments, only email_search in access exclusive mode;
            lock table emails_default, email_recipients_default, attachments_default, email_search_default in access exclusive mode;
            perform set_config('lock_timeout', '0', true);
            return true;
        exception when lock_not_available or deadlock_detected then
            perform pg_sleep(0.05);
        end;
    end loop;
    return false;
end $$;

-- Makes one partition of each of the four tables, with the rows of its range from the default ones. Secured before it is attached.
create or replace function mailroom_make_partition(suffix text, from_id uuid, to_id uuid) returns void language plpgsql as $$
declare
    parent text;
    part text;
    key text;
    columns text;
    bounds text := format('for values from (%s) to (%L)', coalesce(quote_literal(from_id), 'minvalue'), to_id);
begin
    foreach parent in array array['emails', 'email_recipients', 'attachments', 'email_search'] loop
        execute format('create table %I (like %I including defaults including constraints including storage including compression)',
                       parent || '_' || suffix, parent);
        perform mailroom_secure(format('%I', parent || '_' || suffix)::regclass, true);
    end loop;
    execute format('alter table %I alter column tokens set statistics 1000', 'email_search_' || suffix);
    -- Parts before their emails.
    foreach parent in array array['email_recipients', 'attachments', 'email_search', 'emails'] loop
        key := case when parent in ('emails', 'attachments') then 'id' else 'email_id' end;
        select string_agg(format('%I', a.attname), ', ' order by a.attnum) into columns
            from pg_attribute a where a.attrelid = format('%I', parent)::regclass and a.attnum > 0 and not a.attisdropped;
        execute format('with moved as (delete from %1$I where %3$I < %5$L and (%4$L is null or %3$I >= %4$L) returning %6$s)
                        insert into %2$I (%6$s) select %6$s from moved',
                       parent || '_default', parent || '_' || suffix, key, from_id, to_id, columns);
    end loop;
    foreach parent in array array['emails', 'email_recipients', 'attachments', 'email_search'] loop
        part := format('%I', parent || '_' || suffix);
        if parent <> 'emails' then
            execute format('alter table %s add foreign key (tenant_id, email_id) references %I (tenant_id, id)', part, 'emails_' || suffix);
        end if;
        execute format('alter table %I attach partition %s %s', parent, part, bounds);
    end loop;
end $$;

-- The upkeep, daily and when emails come in for which there is no partition. How many ranges were made; null when others kept the tables
-- busy, and then the next time does it. All of it is one transaction, and two callers do it one after the other.
create or replace function mailroom_upkeep_partitions(expected uuid[], tries integer) returns integer language plpgsql security definer as $$
declare
    missing timestamptz;
    range record;
    made integer := 0;
begin
    -- Before any table is touched: who waits here with a table in hand would keep the one at work from it.
    perform pg_advisory_xact_lock(x'6d61696c706172'::bigint);
    if not mailroom_lock_for_partitions(tries) then
        return null;
    end if;
    -- Asked under the locks, when no rows come in any more.
    foreach missing in array array(select * from mailroom_missing_partitions(expected)) loop
        if missing < '1990-01-01T00:00:00Z' then
            perform mailroom_make_partition('before_1990', null, mailroom_id_at('1990-01-01T00:00:00Z'));
            made := made + 1;
            continue;
        end if;
        select * into range from mailroom_partition_for(missing);
        if not exists (select from mailroom_partitions() p where p.from_id = range.from_id) then
            perform mailroom_make_partition(range.suffix, range.from_id, range.to_id);
            made := made + 1;
        end if;
    end loop;
    return made;
end $$;

do $$
declare
    routine regprocedure;
begin
    execute format('alter function mailroom_upkeep_partitions set search_path = %I, pg_temp', current_schema());
    foreach routine in array array['mailroom_partitions()', 'mailroom_partition_for(timestamptz)', 'mailroom_missing_partitions(uuid[])',
        'mailroom_lock_for_partitions(integer)', 'mailroom_make_partition(text, uuid, uuid)', 'mailroom_upkeep_partitions(uuid[], integer)']::regprocedure[]
    loop
        execute format('revoke all on function %s from public', routine);
    end loop;
end $$;
