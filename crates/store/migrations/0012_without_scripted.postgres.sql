-- The scripted provider was removed. Its mailboxes keep their mail, as mailboxes of imported files that are disconnected.
do $$
declare
    mailbox record;
begin
    -- One at a time, by the indexes of each table: where there is none, nothing is searched. The mailbox first, as the
    -- program locks them.
    for mailbox in select tenant_id, id, secret_ref from mailboxes where provider = 'scripted' for update loop
        update mailboxes set provider = 'files', state = 'disconnected', secret_ref = null,
                settings = settings - 'connection', version = version + 1, updated_at = mailroom_now(),
                state_reason = case when state = 'disconnected' then state_reason else 'the scripted provider was removed' end,
                state_since = case when state = 'disconnected' then state_since else mailroom_now() end
            where tenant_id = mailbox.tenant_id and id = mailbox.id;
        update sync_states set next_sync_at = null, token = token + 1, held_until = null, holder = null, is_listing = false,
                paused_until = null, paused_reason = null
            where tenant_id = mailbox.tenant_id and mailbox_id = mailbox.id;
        update ledger set state = 'skipped', reason = 'the scripted provider was removed'
            where mailbox_id = mailbox.id and state in ('queued', 'processing', 'failed');
        delete from sync_cursors where tenant_id = mailbox.tenant_id and mailbox_id = mailbox.id;
        delete from secrets where tenant_id = mailbox.tenant_id and id::text = mailbox.secret_ref;
        update emails set provider = 'files' where mailbox_id = mailbox.id;
    end loop;
end $$;

-- Polls name their provider, and could not be read any more.
delete from jobs where kind = 'poll_mailboxes' and payload ->> 'provider' = 'scripted';
delete from job_attempts where (tenant_id, job_id) in (
    select tenant_id, id from finished_jobs
    where state = 'dead' and kind = 'poll_mailboxes' and payload ->> 'provider' = 'scripted');
delete from finished_jobs where state = 'dead' and kind = 'poll_mailboxes' and payload ->> 'provider' = 'scripted';

delete from provider_usage where provider = 'scripted';
