-- The scripted provider was removed. Its mailboxes keep their mail, as mailboxes of imported files that are disconnected.
update emails set provider = 'files' where mailbox_id in (select id from mailboxes where provider = 'scripted');
update ledger set state = 'skipped', reason = 'the scripted provider was removed'
    where mailbox_id in (select id from mailboxes where provider = 'scripted') and state in ('queued', 'processing', 'failed');
update sync_states set next_sync_at = null, token = token + 1, held_until = null, holder = null, is_listing = 0,
        paused_until = null, paused_reason = null
    where (tenant_id, mailbox_id) in (select tenant_id, id from mailboxes where provider = 'scripted');
delete from sync_cursors where (tenant_id, mailbox_id) in (select tenant_id, id from mailboxes where provider = 'scripted');
delete from secrets where (tenant_id, id) in (select tenant_id, secret_ref from mailboxes where provider = 'scripted');
update mailboxes set provider = 'files', state = 'disconnected', secret_ref = null,
        settings = json_remove(settings, '$.connection'), version = version + 1, updated_at = mailroom_now(),
        state_reason = case when state = 'disconnected' then state_reason else 'the scripted provider was removed' end,
        state_since = case when state = 'disconnected' then state_since else mailroom_now() end
    where provider = 'scripted';

-- Polls name their provider, and could not be read any more.
delete from jobs where kind = 'poll_mailboxes' and payload ->> 'provider' = 'scripted';
delete from job_attempts where (tenant_id, job_id) in (
    select tenant_id, id from finished_jobs
    where state = 'dead' and kind = 'poll_mailboxes' and payload ->> 'provider' = 'scripted');
delete from finished_jobs where state = 'dead' and kind = 'poll_mailboxes' and payload ->> 'provider' = 'scripted';

delete from provider_usage where provider = 'scripted';
