-- Emails that lost their last place in a unit, or have one again: they are deleted, or not any more. One by one, by a constant id, so that
-- each opens its own partition and a unit without any opens none. Runs with the rights of its caller.
create or replace function mailroom_settle_emails(tenant uuid, drafting uuid) returns void language plpgsql as $$
declare
    draft record;
begin
    for draft in
        select d.email_id, d.type = 'email.deleted' as is_gone from event_drafts d
        where d.tenant_id = tenant and d.unit = drafting and d.type in ('email.deleted', 'email.restored')
    loop
        update emails set deleted_at = case when draft.is_gone then mailroom_now() end where tenant_id = tenant and id = draft.email_id;
        update email_search set is_live = not draft.is_gone where tenant_id = tenant and email_id = draft.email_id;
    end loop;
end $$;
revoke all on function mailroom_settle_emails from public;
grant execute on function mailroom_settle_emails to mailroom_tenant;
