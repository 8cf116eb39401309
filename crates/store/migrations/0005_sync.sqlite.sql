-- Mailboxes that live somewhere else: where their listings stand, what happened to their mail, and what opens them.

-- SQLite cannot change a check, so the table is made anew. What refers to it does so by its name and finds the same rows again.
pragma defer_foreign_keys = on;
create table mailboxes_before as select * from mailboxes;
drop table mailboxes;
create table mailboxes (
    id text primary key not null,
    tenant_id text not null references tenants (id),
    provider text not null check (provider in ('files', 'imap', 'gmail', 'outlook', 'scripted')),
    address text not null,
    secret_ref text,
    state text not null check (state in ('connecting', 'active', 'paused', 'needs_reauth', 'error', 'disconnected')),
    state_reason text,
    state_since text not null,
    settings text not null default '{}',
    is_active integer not null default 1,
    version integer not null default 1,
    created_at text not null,
    updated_at text not null,
    unique (tenant_id, id),
    unique (tenant_id, address)
);
insert into mailboxes select * from mailboxes_before;
drop table mailboxes_before;
create index mailboxes_state on mailboxes (tenant_id, state);

-- One row per mailbox that is synced.
create table sync_states (
    tenant_id text not null,
    mailbox_id text not null,
    status text not null default 'idle' check (status in ('syncing', 'idle', 'error')),
    -- When to look again; nothing: not by itself.
    next_sync_at text,
    last_sync_at text,
    error_count integer not null default 0,
    last_error text,
    -- What arrived before this is left out, unless it is seen to move.
    since text,
    -- Whether what was there before the first sync is listed by now.
    is_history_done integer not null default 0,
    -- The number of the full comparison that is under way, or was the last; places that it saw carry it.
    listing integer not null default 0,
    is_listing integer not null default 0,
    -- What it found that we did not have.
    found integer not null default 0,
    -- Who may write for this mailbox: the token grows with every change of holder and is checked by what the holder writes.
    holder text,
    token integer not null default 0,
    held_until text,
    updated_at text not null,
    primary key (tenant_id, mailbox_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);
create index sync_states_due on sync_states (next_sync_at) where next_sync_at is not null;

-- Where a listing stands, by what the provider keeps apart: the whole mailbox, or a folder. Only its connector reads a cursor.
create table sync_cursors (
    tenant_id text not null,
    mailbox_id text not null,
    phase text not null check (phase in ('changes', 'history', 'list')),
    scope text not null,
    cursor text not null,
    primary key (tenant_id, mailbox_id, phase, scope),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);

alter table folders add column is_in_scope integer not null default 1;
alter table folders add column gone_at text;
-- What the provider says of a message before it is fetched.
alter table ledger add column received_at text;
alter table ledger add column is_backfill integer not null default 0;
alter table placements add column listing integer not null default 0;
create index placements_message on placements (tenant_id, mailbox_id, provider_message_id);
-- Which unit brought it: the one that says that the email was received.
alter table email_contents add column unit text;

-- Taken by a unit as the last thing it does, so that numbers come in the order of commits and none is left out.
create table tenant_counters (
    tenant_id text primary key not null references tenants (id),
    event_seq integer not null default 0
);

create table events (
    tenant_id text not null references tenants (id),
    seq integer not null,
    type text not null,
    mailbox_id text,
    email_id text,
    -- Of mail that was there before its mailbox was connected.
    is_backfill integer not null,
    data text not null,
    at text not null,
    primary key (tenant_id, seq)
);

-- What a unit will say, until it has its numbers. Empty outside of units.
create table event_drafts (
    tenant_id text not null references tenants (id),
    unit text not null,
    -- Its place among those of its unit.
    step integer not null,
    type text not null,
    mailbox_id text,
    email_id text,
    is_backfill integer not null,
    data text not null
);
create index event_drafts_unit on event_drafts (tenant_id, unit);

-- A tenant's key, wrapped by the master key; the last version encrypts, the others still open what they encrypted.
create table tenant_keys (
    tenant_id text not null references tenants (id),
    version integer not null,
    wrapped blob not null,
    -- Which master key wraps it.
    master text not null,
    created_at text not null,
    primary key (tenant_id, version)
);

create table secrets (
    tenant_id text not null references tenants (id),
    id text not null,
    kind text not null,
    key_version integer not null,
    -- With tenant, id, kind and version as associated data, so that it opens nowhere else.
    ciphertext blob not null,
    created_at text not null,
    updated_at text not null,
    primary key (tenant_id, id),
    foreign key (tenant_id, key_version) references tenant_keys (tenant_id, version)
);
create index secrets_key on secrets (tenant_id, key_version);

-- The master keys of this database, by their fingerprints. A key that is not here is not this database's.
create table key_fingerprints (
    name text not null,
    fingerprint text not null,
    -- The current one wraps; one that comes next wraps nothing yet; one that retires still opens what is not wrapped again.
    state text not null check (state in ('next', 'current', 'retiring')),
    created_at text not null,
    primary key (name, fingerprint)
);
-- The first one to come in wins.
create unique index key_fingerprints_one on key_fingerprints (name, state) where state <> 'retiring';

-- What the planner cannot know of a table that is empty now: a mailbox has many places, a message few. Without this it
-- reads every place of a mailbox to find those of one message.
analyze placements;
delete from sqlite_stat1 where tbl = 'placements';
insert into sqlite_stat1 (tbl, idx, stat) values
    ('placements', 'placements', '1000000 20000 1000 1'),
    ('placements', 'placements_email', '1000000 100000 2'),
    ('placements', 'placements_message', '1000000 100000 20000 2');
analyze sqlite_schema;
