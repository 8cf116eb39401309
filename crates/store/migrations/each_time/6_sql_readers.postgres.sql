-- Who reads with SQL: logins that are members of mailroom_tenant_reader or mailroom_all_reader. Being one is not enough, for roles belong to the
-- server and a reader of one Mailroom could connect to another's database: what a login reads is in sql_readers, which no reader can see or write.
-- Nothing here rests on a setting of the session, because a session can change its settings.
--
-- Filled in from the catalogue in store/src/views: the calls that state the views, their names, and the columns behind them.

create or replace function mailroom_reader_tenant() returns uuid language sql stable security definer as $$
    -- session_user is who logged in, whatever role is set; nobody but a superuser can change it. A deleted tenant is not read any more.
    select r.tenant_id from sql_readers r join tenants t on t.id = r.tenant_id where r.login = session_user and t.deleted_at is null
$$;

create or replace function mailroom_reader_sees_all() returns boolean language sql stable security definer as $$
    select exists (select from sql_readers r where r.login = session_user and r.tenant_id is null)
$$;

-- Makes a view as it should be. One that is so already is left alone, so that nobody waits for its readers: whether it is, the server says of a second one.
create or replace function mailroom_state_view(name text, definition text, comments jsonb) returns void language plpgsql as $$
declare
    place text := quote_ident(current_schema());
    probe text := format('%s.%I', place, name || '_probe');
    stated text := format('%s.%I', place, name);
    note record;
    is_stated boolean;
begin
    execute format('create view %s with (security_invoker = true) as %s', probe, definition);
    is_stated := coalesce((select pg_get_viewdef(c.oid) = pg_get_viewdef(probe::regclass) and c.reloptions = array['security_invoker=true']
                           from pg_class c where c.oid = to_regclass(stated)), false);
    execute format('drop view %s', probe);
    if not is_stated then
        begin
            execute format('create or replace view %s with (security_invoker = true) as %s', stated, definition);
        exception when invalid_table_definition then -- its columns were changed by hand
            execute format('drop view %s', stated);
            execute format('create view %s with (security_invoker = true) as %s', stated, definition);
        end;
    end if;
    for note in
        select c.key as part, c.value as meaning, a.attnum from jsonb_each_text(comments) c
        left join pg_attribute a on a.attrelid = stated::regclass and a.attname = c.key
    loop
        if note.part = '' and obj_description(stated::regclass, 'pg_class') is distinct from note.meaning then
            execute format('comment on view %s is %L', stated, note.meaning);
        elsif note.part <> '' and col_description(stated::regclass, note.attnum) is distinct from note.meaning then
            execute format('comment on column %s.%I is %L', stated, note.part, note.meaning);
        end if;
    end loop;
end $$;

-- `true` when a table has this policy for what its role reads, and nothing else.
create or replace function mailroom_has_read_policy(target regclass, policy name, condition text) returns boolean language sql stable as $$
    select exists (
        select from pg_policy p
        where p.polrelid = target and p.polname = policy and p.polpermissive and p.polcmd = 'r' and p.polwithcheck is null
          and p.polroles = array[policy::text::regrole::oid]
          and pg_get_expr(p.polqual, p.polrelid) ~ replace(condition, '{KEY}', case when target = to_regclass('tenants') then 'id' else 'tenant_id' end)
    )
$$;

-- Gives both roles what they may read of a relation, and takes back all else. `columns` are those of a table that are behind a view.
create or replace function mailroom_open_to_readers(target regclass, is_view boolean, columns text[]) returns void language plpgsql as $$
declare
    key text := case when target = to_regclass('tenants') then 'id' else 'tenant_id' end;
    wanted text[] := case when is_view then array['SELECT'] else array(select 'SELECT of ' || c from unnest(columns) c order by 1) end;
    reader text;
    expected text;
    condition text;
begin
    for reader, expected, condition in
        values ('mailroom_tenant_reader', '{TENANT_READER_POLICY}', key || ' = (select mailroom_reader_tenant())'),
               ('mailroom_all_reader', '{ALL_READER_POLICY}', '(select mailroom_reader_sees_all())')
    loop
        if not is_view and columns = '{}' then
            if exists (select from pg_policy p where p.polrelid = target and p.polname = reader) then
                execute format('drop policy %I on %s', reader, target);
            end if;
        elsif not is_view and not mailroom_has_read_policy(target, reader, expected) then
            execute format('drop policy if exists %I on %s', reader, target);
            execute format('create policy %I on %s for select to %I using (%s)', reader, target, reader, condition);
        end if;
        if mailroom_granted(target, reader::regrole) <> wanted then
            execute format('revoke all on %s from %I', target, reader);
            if is_view then
                execute format('grant select on %s to %I', target, reader);
            elsif columns <> '{}' then
                execute format('grant select (%s) on %s to %I', (select string_agg(quote_ident(c), ', ') from unnest(columns) c), target, reader);
            end if;
        end if;
    end loop;
end $$;

do $$
declare
    target regclass;
    is_view boolean;
    columns text[];
    routine regprocedure;
    reader text;
begin
    {VIEWS}
    for target, is_view, columns in
        select c.oid, c.relname in (select v.name from (values {VIEW_COLUMNS}) v (name, columns)), array(select r.source from (values {READABLE_COLUMNS}) r (relation, source) where r.relation = c.relname)
        from pg_class c
        where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v') and c.relowner = 'mailroom_system'::regrole
        order by c.relname
    loop
        perform mailroom_open_to_readers(target, is_view, columns);
    end loop;
    execute format('alter function mailroom_reader_tenant set search_path = %I, pg_temp', current_schema());
    execute format('alter function mailroom_reader_sees_all set search_path = %I, pg_temp', current_schema());
    revoke all on function mailroom_reader_tenant, mailroom_reader_sees_all, mailroom_state_view, mailroom_has_read_policy, mailroom_open_to_readers
        from public;
    for routine, reader in
        select p.oid, g.grantee::regrole::text from pg_proc p, aclexplode(p.proacl) g
        where p.pronamespace = current_schema()::regnamespace and p.proowner = 'mailroom_system'::regrole
          and g.grantee in ('mailroom_tenant_reader'::regrole, 'mailroom_all_reader'::regrole)
          and p.proname not in ('mailroom_reader_tenant', 'mailroom_reader_sees_all')
    loop
        execute format('revoke all on function %s from %s', routine, reader);
    end loop;
    grant execute on function mailroom_reader_tenant, mailroom_reader_sees_all to mailroom_tenant_reader, mailroom_all_reader;
end $$;
