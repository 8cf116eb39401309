-- Why a job waits that has spent no attempt by it, for people; shown while it waits.
alter table jobs add column wait_reason text;
-- What a blocked job waits for that is no job, such as a mailbox that is paused: whatever ends that wakes the job.
alter table jobs add column parked_on text;
create index jobs_parked on jobs (tenant_id, parked_on) where parked_on is not null;

-- A message that fails is a dead letter from now on. Those that failed before have none, and most failed for trouble of our own:
-- they are requested once more, and are stored or become dead letters.
update ledger set state = 'queued', reason = null
where state = 'failed' and email_id is null and mailbox_id in (select id from mailboxes where provider <> 'files');

-- Deleted mail can be found and brought back, and erased mail leaves the file.

-- Emails that somebody brought back here, whether or not their provider has them.
create table restored_emails (
    tenant_id text not null,
    email_id text not null,
    at text not null,
    primary key (tenant_id, email_id)
);

create index emails_deleted on emails (tenant_id, id) where deleted_at is not null;

-- Counts erasures: all of them, those of which nothing is left in pages that are free and in the text index, and those after
-- which the whole file was written anew.
create table scrubs (
    wanted integer not null,
    done integer not null,
    compacted integer not null
);
insert into scrubs values (0, 0, 0);

-- Takes free pages for a moment, so that they are overwritten.
create table scrub_filler (bytes blob not null);

-- A merge that was begun goes on, however many small segments come meanwhile: they are merged before they outnumber its own.
insert into email_search (email_search, rank) values ('usermerge', 2);

-- Kinds of waiting jobs that no live worker has registered, and since when that is so.
create table unregistered_job_kinds (
    kind text primary key,
    since text not null
) without rowid;

-- Numbers of events that were perhaps given out before a restore, and never since: those between the two.
create table event_gaps (
    tenant_id text not null references tenants (id),
    after_seq integer not null,
    next_seq integer not null check (next_seq > after_seq),
    restored_at text not null,
    primary key (tenant_id, after_seq)
) without rowid;

-- What a listing of the provider lacks is removed only once that is confirmed; until then it stays as it was.

-- Since when listings lack the folder, and how many of them count: two confirm it.
alter table folders add column missing_since text;
alter table folders add column missing_looks integer not null default 0;

-- Since when listings lack the message here.
alter table placements add column missing_since text;
create index placements_missing on placements (tenant_id, mailbox_id) where missing_since is not null;

-- Set while so much is missing that it is doubted: since when, how many messages, how many comparisons have agreed since, when
-- the next one is due, and whether a person has said that it is true.
alter table sync_states add column removals_held_since text;
alter table sync_states add column removals_held integer not null default 0;
alter table sync_states add column removals_looks integer not null default 0;
alter table sync_states add column removals_look_at text;
alter table sync_states add column removals_approved integer not null default 0;

-- Few messages are missing at any time, which the planner cannot know of an empty index.
insert into sqlite_stat1 (tbl, idx, stat) values ('placements', 'placements_missing', '100 50 20');
analyze sqlite_schema;

-- A folder that an import made, and no provider: that a listing lacks it says nothing.
alter table folders add column is_imported integer not null default 0;
update folders set is_imported = true
where exists (select 1 from placements p where p.tenant_id = folders.tenant_id and p.mailbox_id = folders.mailbox_id
              and p.folder_id = folders.id and p.provider_message_id like 'sha256:%')
  and not exists (select 1 from placements p where p.tenant_id = folders.tenant_id and p.mailbox_id = folders.mailbox_id
                  and p.folder_id = folders.id and p.provider_message_id not like 'sha256:%');
