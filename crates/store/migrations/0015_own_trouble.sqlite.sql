-- Why a job waits that has spent no attempt by it, for people; shown while it waits.
alter table jobs add column wait_reason text;
-- What a blocked job waits for that is no job, such as a mailbox that is paused: whatever ends that wakes the job.
alter table jobs add column parked_on text;
create index jobs_parked on jobs (tenant_id, parked_on) where parked_on is not null;

-- A message that fails is a dead letter from now on. Those that failed before have none, and most failed for trouble of our own:
-- they are requested once more, and are stored or become dead letters.
update ledger set state = 'queued', reason = null
where state = 'failed' and email_id is null and mailbox_id in (select id from mailboxes where provider <> 'files');
