-- Who sees which rows. Every `migrate` runs this as mailroom_system, so that what was changed by hand is put right; where nothing was, it
-- changes nothing and waits for nobody. {TENANT_POLICY} is how the server spells our policy.

-- Brings one table to what it should be: row security, forced on its owner too, our two policies, and grants on parents only, because a
-- partition can be read by its name and its parent's policies do not hold there.
create or replace function mailroom_secure(target regclass, is_partition boolean) returns void language plpgsql as $$
declare
    relation pg_class := (select c from pg_class c where c.oid = target);
    is_tenants boolean := relation.relname = 'tenants';
    key text := case when is_tenants then 'id' else 'tenant_id' end;
    own text := key || ' = (select nullif(current_setting(''mailroom.tenant'', true), '''')::uuid)';
    -- Who reads with SQL, only the system decides.
    wanted text[] := case when is_partition or relation.relname = 'sql_readers' then '{}'::text[]
                          when is_tenants then array['SELECT']
                          -- What is written down is only added to.
                          when relation.relname = 'audit' then array['INSERT', 'SELECT']
                          when relation.relname = 'audit_heads' then array['INSERT', 'SELECT', 'UPDATE'] else array['DELETE', 'INSERT', 'SELECT', 'UPDATE'] end;
    stranger name;
begin
    if not (relation.relrowsecurity and relation.relforcerowsecurity) then
        execute format('alter table %s enable row level security, force row level security', target);
    end if;
    -- A policy of somebody else's that holds for us would add to what a tenant sees. Policies for other roles are their owner's business.
    for stranger in
        select p.polname from pg_policy p where p.polrelid = target and p.polname not in ('mailroom_tenant', 'mailroom_system', 'mailroom_tenant_reader', 'mailroom_all_reader')
          and p.polroles && array[0, 'mailroom_tenant'::regrole::oid, 'mailroom_system'::regrole::oid,
                                  'mailroom_tenant_reader'::regrole::oid, 'mailroom_all_reader'::regrole::oid]
    loop
        execute format('drop policy %I on %s', stranger, target);
    end loop;
    if not mailroom_has_policy(target, 'mailroom_tenant', '^\({KEY}{TENANT_POLICY}\)$') then
        execute format('drop policy if exists mailroom_tenant on %s', target);
        execute format('create policy mailroom_tenant on %s to mailroom_tenant using (%s) with check (%s)', target, own, own);
    end if;
    if not mailroom_has_policy(target, 'mailroom_system', '^true$') then
        execute format('drop policy if exists mailroom_system on %s', target);
        execute format('create policy mailroom_system on %s to mailroom_system using (true) with check (true)', target);
    end if;
    if mailroom_granted(target, 0) <> '{}' then
        execute format('revoke all on %s from public', target);
    end if;
    if mailroom_granted(target, 'mailroom_tenant'::regrole) <> wanted then
        execute format('revoke all on %s from mailroom_tenant', target);
        if wanted <> '{}' then
            execute format('grant %s on %s to mailroom_tenant', array_to_string(wanted, ', '), target);
        end if;
    end if;
end $$;

-- `true` when a table has this policy for everything that its role does, and with this condition.
create or replace function mailroom_has_policy(target regclass, policy name, condition text) returns boolean language sql stable as $$
    select exists (
        select from pg_policy p
        where p.polrelid = target and p.polname = policy and p.polpermissive and p.polcmd = '*'
          and p.polroles = array[policy::text::regrole::oid]
          and pg_get_expr(p.polqual, p.polrelid) ~ replace(condition, '{KEY}', case when target = to_regclass('tenants') then 'id' else 'tenant_id' end)
          and pg_get_expr(p.polwithcheck, p.polrelid) = pg_get_expr(p.polqual, p.polrelid))
$$;

-- What a role (0: everybody) may do with a table or some of its columns, in alphabetical order.
create or replace function mailroom_granted(target regclass, role oid) returns text[] language sql stable as $$
    select coalesce(array_agg(distinct granted.privilege_type order by granted.privilege_type), '{}')
    from (select g.grantee, g.privilege_type from pg_class c, aclexplode(c.relacl) g where c.oid = target
          union all
          select g.grantee, g.privilege_type || ' of ' || a.attname from pg_attribute a, aclexplode(a.attacl) g where a.attrelid = target) granted
    where granted.grantee = role
$$;

do $$
declare
    target regclass;
    is_partition boolean;
    routine regprocedure;
begin
    for target, is_partition in
        select c.oid, c.relispartition from pg_class c
        where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p') and c.relowner = 'mailroom_system'::regrole
          and (c.relname = 'tenants' or exists (
              select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped))
        order by c.relname
    loop
        perform mailroom_secure(target, is_partition);
    end loop;
    for routine in
        select p.oid from pg_proc p
        where p.pronamespace = current_schema()::regnamespace and p.proowner = 'mailroom_system'::regrole
          and (p.proacl is null or exists (select from aclexplode(p.proacl) g where g.grantee = 0))
    loop
        execute format('revoke all on function %s from public', routine);
    end loop;
    -- What a tenant may call is granted where it is made; whatever else was granted by hand is taken back.
    for routine in
        select p.oid from pg_proc p, aclexplode(p.proacl) g
        where p.pronamespace = current_schema()::regnamespace and p.proowner = 'mailroom_system'::regrole
          and g.grantee = 'mailroom_tenant'::regrole and p.proname not in ('mailroom_now', 'mailroom_micros', 'mailroom_find_emails', 'mailroom_search', 'mailroom_places', 'mailroom_settle_emails')
    loop
        execute format('revoke all on function %s from mailroom_tenant', routine);
    end loop;
    grant execute on function mailroom_now(), mailroom_micros() to mailroom_tenant;
end $$;
