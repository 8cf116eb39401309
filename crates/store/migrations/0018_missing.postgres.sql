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
