-- Mailboxes that live somewhere else: where their listings stand, what happened to their mail, and what opens them.

alter table mailboxes drop constraint mailboxes_provider_check,
    add check (provider in ('files', 'imap', 'gmail', 'outlook', 'scripted'));

-- One row per mailbox that is synced.
create table sync_states (
    tenant_id uuid not null,
    mailbox_id uuid not null,
    status text not null default 'idle' check (status in ('syncing', 'idle', 'error')),
    -- When to look again; nothing: not by itself.
    next_sync_at timestamptz,
    last_sync_at timestamptz,
    error_count integer not null default 0,
    last_error text,
    -- What arrived before this is left out, unless it is seen to move.
    since timestamptz,
    -- Whether what was there before the first sync is listed by now.
    is_history_done boolean not null default false,
    -- The number of the full comparison that is under way, or was the last; places that it saw carry it.
    listing bigint not null default 0,
    is_listing boolean not null default false,
    -- What it found that we did not have.
    found bigint not null default 0,
    -- Who may write for this mailbox: the token grows with every change of holder and is checked by what the holder writes.
    holder text,
    token bigint not null default 0,
    held_until timestamptz,
    updated_at timestamptz not null,
    primary key (tenant_id, mailbox_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
) with (fillfactor = 70);
create index sync_states_due on sync_states (next_sync_at) where next_sync_at is not null;

-- Where a listing stands, by what the provider keeps apart: the whole mailbox, or a folder. Only its connector reads a cursor.
create table sync_cursors (
    tenant_id uuid not null,
    mailbox_id uuid not null,
    phase text not null check (phase in ('changes', 'history', 'list')),
    scope text not null,
    cursor text not null,
    primary key (tenant_id, mailbox_id, phase, scope),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);

alter table folders add column is_in_scope boolean not null default true, add column gone_at timestamptz;
-- What the provider says of a message before it is fetched.
alter table ledger add column received_at timestamptz, add column is_backfill boolean not null default false;
alter table placements add column listing bigint not null default 0;
create index placements_message on placements (tenant_id, mailbox_id, provider_message_id);
-- Which unit brought it: the one that says that the email was received.
alter table email_contents add column unit uuid;

-- Taken by a unit as the last thing it does, so that numbers come in the order of commits and none is left out.
create table tenant_counters (
    tenant_id uuid primary key references tenants (id),
    event_seq bigint not null default 0
);

create table events (
    tenant_id uuid not null references tenants (id),
    seq bigint not null,
    type text not null,
    mailbox_id uuid,
    email_id uuid,
    -- Of mail that was there before its mailbox was connected.
    is_backfill boolean not null,
    data jsonb not null,
    at timestamptz not null,
    primary key (tenant_id, seq)
);

-- What a unit will say, until it has its numbers. Empty outside of units.
create table event_drafts (
    tenant_id uuid not null references tenants (id),
    unit uuid not null,
    -- Its place among those of its unit.
    step integer not null,
    type text not null,
    mailbox_id uuid,
    email_id uuid,
    is_backfill boolean not null,
    data jsonb not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
create index event_drafts_unit on event_drafts (tenant_id, unit);

-- A tenant's key, wrapped by the master key; the last version encrypts, the others still open what they encrypted.
create table tenant_keys (
    tenant_id uuid not null references tenants (id),
    version integer not null,
    wrapped bytea not null,
    -- Which master key wraps it.
    master text not null,
    created_at timestamptz not null,
    primary key (tenant_id, version)
);

create table secrets (
    tenant_id uuid not null references tenants (id),
    id uuid not null,
    kind text not null,
    key_version integer not null,
    -- With tenant, id, kind and version as associated data, so that it opens nowhere else.
    ciphertext bytea not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
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
    created_at timestamptz not null,
    primary key (name, fingerprint)
);
-- The first one to come in wins.
create unique index key_fingerprints_one on key_fingerprints (name, state) where state <> 'retiring';
