//! Checks the catalog for everything that keeps tenants apart: roles, policies, grants. What is missing or was changed by
//! hand is reported, each with what to do about it.

use tokio_postgres::Client;

use super::error;
use super::roles::{self, ALL_READER_ROLE, SYSTEM_ROLE, TENANT_READER_ROLE, TENANT_ROLE};
use crate::StoreError;

const MIGRATE: &str = "run `mailroom migrate`, which puts it right";

/// Returns one sentence per thing that is not as it should be.
pub(crate) async fn find_problems(client: &Client) -> Result<Vec<String>, StoreError> {
    let mut found = roles(client).await?;
    found.extend(login(client).await?);
    if rows(client, MISSING_ROLES).await?.is_empty() {
        for sql in [TABLES, READERS, VIEWS, POLICIES, ROUTINES] {
            found.extend(
                rows(client, &roles::filled_in(sql))
                    .await?
                    .into_iter()
                    .map(|what: String| if what.contains("; ") { what } else { format!("{what}; {MIGRATE}") }),
            );
        }
    }
    Ok(found)
}

async fn rows(client: &Client, sql: &str) -> Result<Vec<String>, StoreError> {
    let rows = client.query_typed(sql, &[]).await.map_err(error)?;
    rows.iter().map(|row| row.try_get(0).map_err(error)).collect()
}

const MISSING_ROLES: &str = "select 'the role ' || name || ' is missing'
    from unnest(array['mailroom_tenant', 'mailroom_system', 'mailroom_tenant_reader', 'mailroom_all_reader']) name
    where to_regrole(name) is null";

async fn roles(client: &Client) -> Result<Vec<String>, StoreError> {
    let mut found: Vec<String> =
        rows(client, MISSING_ROLES).await?.into_iter().map(|what| format!("{what}; {MIGRATE}")).collect();
    let changed = format!(
        "select format('the role %1$s %2$s; let an administrator run: alter role %1$s nologin nosuperuser nobypassrls nocreaterole',
                       rolname,
                       case when rolsuper then 'is a superuser' when rolbypassrls then 'bypasses row security'
                            when rolcanlogin then 'can log in' else 'may make roles' end)
         from pg_roles where rolname in ('{TENANT_ROLE}', '{SYSTEM_ROLE}', '{TENANT_READER_ROLE}', '{ALL_READER_ROLE}')
           and (rolsuper or rolbypassrls or rolcanlogin or rolcreaterole)
         union all
         select format('the role %1$s is a member of %2$s; let an administrator run: revoke %2$s from %1$s', m.member::regrole, m.roleid::regrole)
         from pg_auth_members m
         where m.member in (select oid from pg_roles where rolname in ('{TENANT_ROLE}', '{SYSTEM_ROLE}', '{TENANT_READER_ROLE}', '{ALL_READER_ROLE}'))
         union all
         select format('the login %1$I is a reader for whom row security does not hold; let an administrator run: alter role %1$I nosuperuser nobypassrls', rolname)
         from pg_roles where rolname <> session_user and (rolsuper or rolbypassrls) and oid in (
             select m.member from pg_auth_members m join pg_roles r on r.oid = m.roleid
             where r.rolname in ('{TENANT_READER_ROLE}', '{ALL_READER_ROLE}'))"
    );
    found.extend(rows(client, &changed).await?);
    Ok(found)
}

/// Checks that the login can become either role, and sees nothing before it does.
async fn login(client: &Client) -> Result<Vec<String>, StoreError> {
    let seeing = "select case
            when rolsuper then format('the login %I is a superuser, whom row security does not hold; let database.url name a login of its own (docs/postgresql.md)', rolname)
            else format('the login %1$I bypasses row security; let an administrator run: alter role %1$I nobypassrls', rolname) end
         from pg_roles where rolname = session_user and (rolsuper or rolbypassrls)";
    let mut found = rows(client, seeing).await?;
    let membership = "select case
            when not pg_has_role(session_user, name, 'member') then format('the login %I is not a member of %s', session_user, name)
            else format('the login %I inherits from %s, so that it sees rows without saying so', session_user, name) end
         from unnest(array['mailroom_tenant', 'mailroom_system', 'mailroom_tenant_reader', 'mailroom_all_reader']) name
         where to_regrole(name) is not null
           and not (select rolsuper from pg_roles where rolname = session_user)
           and (not pg_has_role(session_user, name, 'member') or pg_has_role(session_user, name, 'usage'))";
    found.extend(rows(client, membership).await?.into_iter().map(|what| format!("{what}; {MIGRATE}")));
    Ok(found)
}

/// Every table, partition and view with a tenant_id, and the tenants themselves.
const TABLES: &str = r#"
with relation as (
    select c.oid, c.relname, c.relkind, c.relispartition, c.relowner, c.relrowsecurity, c.relforcerowsecurity, c.relacl, c.reloptions,
           case when c.relname = 'tenants' then 'id' else 'tenant_id' end as key,
           case c.relkind when 'v' then 'the view ' else case when c.relispartition then 'the partition ' else 'the table ' end end || c.relname as what
    from pg_class c
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
      and (c.relname = 'tenants' or exists (
          select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped))
), granted as (
    select r.oid, g.grantee, g.privilege_type from relation r, aclexplode(r.relacl) g
    union all
    select r.oid, g.grantee, g.privilege_type || ' of ' || a.attname
    from relation r join pg_attribute a on a.attrelid = r.oid, aclexplode(a.attacl) g
)
select problem from (
    select format('%s belongs to %s; let an administrator run: alter table %I owner to mailroom_system', what, relowner::regrole, relname) as problem, relname
        from relation
        where relkind in ('r', 'p') and relowner <> 'mailroom_system'::regrole
    union all
    select what || ' has no row security', relname from relation where relkind in ('r', 'p') and not relrowsecurity
    union all
    select what || ' does not force row security on its owner', relname from relation where relkind in ('r', 'p') and not relforcerowsecurity
    union all
    select format('%s reads with the rights of its owner; run: alter view %I set (security_invoker = true)', what, relname), relname from relation
        where relkind = 'v' and not coalesce(reloptions && array['security_invoker=true', 'security_invoker=on', 'security_invoker=1'], false)
    union all
    select format('row security cannot hold for %I; drop it', relname), relname from relation where relkind in ('m', 'f')
    union all
    select what || ' lacks the policy ' || role || ', or it was changed', relname
        from relation r, unnest(array['mailroom_tenant', 'mailroom_system']) role
        where relkind in ('r', 'p') and not exists (
            select from pg_policy p
            where p.polrelid = r.oid and p.polname = role and p.polpermissive and p.polcmd = '*' and p.polroles = array[role::regrole::oid]
              and pg_get_expr(p.polqual, p.polrelid) ~ case role when 'mailroom_system' then '^true$' else '^\(' || r.key || '{TENANT_POLICY}\)$' end
              and pg_get_expr(p.polwithcheck, p.polrelid) = pg_get_expr(p.polqual, p.polrelid))
    union all
    select what || ' is open to everybody (' || string_agg(g.privilege_type, ', ' order by g.privilege_type) || ')', relname
        from relation r join granted g on g.oid = r.oid and g.grantee = 0 group by what, relname
    union all
    select what || ' does not have its grants for mailroom_tenant: ' || coalesce(string_agg(g.privilege_type, ', ' order by g.privilege_type), 'none'), relname
        from relation r left join granted g on g.oid = r.oid and g.grantee = 'mailroom_tenant'::regrole
        where relkind in ('r', 'p')
        group by what, relname, relispartition
        having coalesce(string_agg(g.privilege_type, ', ' order by g.privilege_type), '')
            <> case when relispartition or relname = 'sql_readers' then '' when relname = 'tenants' then 'SELECT'
                    when relname = 'audit' then 'INSERT, SELECT' when relname = 'audit_heads' then 'INSERT, SELECT, UPDATE' else 'DELETE, INSERT, SELECT, UPDATE' end
) found order by relname, problem"#;

/// What readers may read: of a table the columns behind the views, by a policy of their own, and the views. Nothing else, so that a
/// table without a tenant counts as well.
const READERS: &str = r#"
with relation as (
    select c.oid, c.relname, c.relkind = 'v' and c.relname in (select v.name from (values {VIEW_COLUMNS}) v (name, columns)) as is_view,
           array(select r.source from (values {READABLE_COLUMNS}) r (relation, source) where r.relation = c.relname) as columns,
           case when c.relname = 'tenants' then 'id' else 'tenant_id' end as key,
           case c.relkind when 'v' then 'the view ' else case when c.relispartition then 'the partition ' else 'the table ' end end || c.relname as what
    from pg_class c
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v') and c.relowner = 'mailroom_system'::regrole
), reader as (
    select * from (values ('mailroom_tenant_reader', '{TENANT_READER_POLICY}'), ('mailroom_all_reader', '{ALL_READER_POLICY}')) r (name, condition)
), granted as (
    select r.oid, g.grantee, g.privilege_type from relation r join pg_class c on c.oid = r.oid, aclexplode(c.relacl) g
    union all
    select r.oid, g.grantee, g.privilege_type || ' of ' || a.attname
    from relation r join pg_attribute a on a.attrelid = r.oid, aclexplode(a.attacl) g
)
select what || ' lacks the policy ' || name || ', or it was changed' from relation r, reader
    where not is_view and columns <> '{}' and not exists (
        select from pg_policy p
        where p.polrelid = r.oid and p.polname = name and p.polpermissive and p.polcmd = 'r' and p.polroles = array[name::regrole::oid]
          and pg_get_expr(p.polqual, p.polrelid) ~ replace(condition, '{KEY}', r.key))
union all
select what || ' has the policy ' || name || ', though readers do not read it' from relation r, reader
    where columns = '{}' and exists (select from pg_policy p where p.polrelid = r.oid and p.polname = name)
union all
select what || ' does not have its grants for ' || name from relation r, reader
    where array(select g.privilege_type from granted g where g.oid = r.oid and g.grantee = name::regrole order by 1)
        <> case when is_view then array['SELECT'] else array(select 'SELECT of ' || c from unnest(columns) c order by 1) end
order by 1"#;

/// The SQL views with their columns.
const VIEWS: &str = "
select case when c.oid is null then format('the view %s is missing', v.name)
            when c.relowner <> 'mailroom_system'::regrole
                then format('the view %s belongs to %s; let an administrator run: alter view %1$I owner to mailroom_system', v.name, c.relowner::regrole)
            else format('the view %s was changed', v.name) end
from (values {VIEW_COLUMNS}) v (name, columns)
left join pg_class c on c.relname = v.name and c.relnamespace = current_schema()::regnamespace and c.relkind = 'v'
where c.oid is null or c.relowner <> 'mailroom_system'::regrole
   or v.columns <> (select string_agg(a.attname, ', ' order by a.attnum) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0)";

/// Policies that would add to what our roles see. Those for other roles are their owner's business.
const POLICIES: &str = "select format('the table %s has the policy %I, which is not Mailroom''s and holds for its roles', p.polrelid::regclass, p.polname)
    from pg_policy p join pg_class c on c.oid = p.polrelid
    where c.relnamespace = current_schema()::regnamespace and p.polname not in ('mailroom_tenant', 'mailroom_system', 'mailroom_tenant_reader', 'mailroom_all_reader')
      and p.polroles && array[0, 'mailroom_tenant'::regrole::oid, 'mailroom_system'::regrole::oid,
                              'mailroom_tenant_reader'::regrole::oid, 'mailroom_all_reader'::regrole::oid]
    order by 1";

/// A tenant may call six of our functions, and readers two, which their policies call; what runs with its owner's rights has a search path of its own.
const ROUTINES: &str = "
with routine as (
    select p.oid, p.proname, p.prosecdef, p.proowner, p.proconfig, coalesce(p.proacl, acldefault('f', p.proowner)) as acl
    from pg_proc p where p.pronamespace = current_schema()::regnamespace and (p.proname like 'mailroom\\_%' or p.prosecdef)
)
select format('the function %s is missing', name) from unnest(array['mailroom_now', 'mailroom_micros', 'mailroom_find_emails', 'mailroom_places', 'mailroom_settle_emails', 'mailroom_upkeep_partitions',
        'mailroom_job_candidates', 'mailroom_claim_jobs', 'mailroom_reader_tenant', 'mailroom_reader_sees_all']) name
    where not exists (select from routine where proname = name)
union all
select format('the function %s belongs to %s; let an administrator run: alter function %1$s owner to mailroom_system', proname, proowner::regrole) from routine
    where proowner <> 'mailroom_system'::regrole
union all
select format('everybody may call the function %s', proname) from routine
    where exists (select from aclexplode(acl) g where g.grantee = 0)
union all
select format('mailroom_tenant may %scall the function %s', case when may then '' else 'not ' end, proname)
    from (select proname, exists (select from aclexplode(acl) g where g.grantee = 'mailroom_tenant'::regrole) as may from routine) r
    where may <> (proname in ('mailroom_now', 'mailroom_micros', 'mailroom_find_emails', 'mailroom_search', 'mailroom_places', 'mailroom_settle_emails'))
union all
select format('%s may %scall the function %s', reader, case when may then '' else 'not ' end, proname)
    from (select proname, reader, exists (select from aclexplode(acl) g where g.grantee = reader::regrole) as may
          from routine, unnest(array['mailroom_tenant_reader', 'mailroom_all_reader']) reader) r
    where may <> (proname in ('mailroom_reader_tenant', 'mailroom_reader_sees_all'))
union all
select format('the function %s has no search path of its own', proname) from routine
    where prosecdef and not coalesce(proconfig && array[format('search_path=%I, pg_temp', current_schema())], false)
union all
select format('the function %s does not run with its owner''s rights', proname) from routine
    where proname in ('mailroom_find_emails', 'mailroom_upkeep_partitions', 'mailroom_reader_tenant', 'mailroom_reader_sees_all') and not prosecdef";
