-- Why a job waits that has spent no attempt by it, for people; shown while it waits.
alter table jobs add column wait_reason text;
-- What a blocked job waits for that is no job, such as a mailbox that is paused: whatever ends that wakes the job.
alter table jobs add column parked_on text;
create index jobs_parked on jobs (tenant_id, parked_on) where parked_on is not null;

-- A message that fails is a dead letter from now on. Those that failed before have none, and most failed for trouble of our own:
-- they are requested once more, and are stored or become dead letters.
update ledger set state = 'queued', reason = null
where state = 'failed' and email_id is null and mailbox_id in (select id from mailboxes where provider <> 'files');

-- Deleted mail can be found and brought back.

-- Emails that somebody brought back here, whether or not their provider has them.
create table restored_emails (
    tenant_id uuid not null,
    email_id uuid not null,
    at timestamptz not null,
    primary key (tenant_id, email_id)
);

create index emails_deleted on emails (tenant_id, id) where deleted_at is not null;

-- Kinds of waiting jobs that no live worker has registered, and since when that is so.
create table unregistered_job_kinds (
    kind text primary key,
    since timestamptz not null
);

-- Numbers of events that were perhaps given out before a restore, and never since: those between the two.
create table event_gaps (
    tenant_id uuid not null references tenants (id),
    after_seq bigint not null,
    next_seq bigint not null check (next_seq > after_seq),
    restored_at timestamptz not null,
    primary key (tenant_id, after_seq)
);

-- What a listing of the provider lacks is removed only once that is confirmed; until then it stays as it was.

-- Since when listings lack the folder, and how many of them count: two confirm it.
alter table folders add column missing_since timestamptz, add column missing_looks integer not null default 0;

-- Since when listings lack the message here.
alter table placements add column missing_since timestamptz;
create index placements_missing on placements (tenant_id, mailbox_id) where missing_since is not null;

-- Set while so much is missing that it is doubted: since when, how many messages, how many comparisons have agreed since, when
-- the next one is due, and whether a person has said that it is true.
alter table sync_states
    add column removals_held_since timestamptz,
    add column removals_held bigint not null default 0,
    add column removals_looks integer not null default 0,
    add column removals_look_at timestamptz,
    add column removals_approved boolean not null default false;

-- A folder that an import made, and no provider: that a listing lacks it says nothing.
alter table folders add column is_imported boolean not null default false;
update folders set is_imported = true
where exists (select 1 from placements p where p.tenant_id = folders.tenant_id and p.mailbox_id = folders.mailbox_id
              and p.folder_id = folders.id and p.provider_message_id like 'sha256:%')
  and not exists (select 1 from placements p where p.tenant_id = folders.tenant_id and p.mailbox_id = folders.mailbox_id
                  and p.folder_id = folders.id and p.provider_message_id not like 'sha256:%');

-- What each login of mailroom_tenant_reader and mailroom_all_reader reads. Only mailroom_system sees and writes it: see each_time/6_sql_readers.
create table sql_readers (
    login text not null,
    -- Nothing: the rows of all tenants.
    tenant_id uuid references tenants (id),
    -- 0: until it is revoked. Else of a `mailroom sql`, whose login reads for this transaction, which is never committed.
    transaction_id bigint not null default 0,
    -- Whether Mailroom made the login, and so may drop it. Other installations on the server may use it too.
    makes_login boolean not null default false,
    created_at timestamptz not null,
    primary key (login, transaction_id)
);
create index sql_readers_tenant on sql_readers (tenant_id);
