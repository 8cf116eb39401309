-- Organisations whose people get their mailboxes by themselves.

-- A directory that a tenant has let us look at.
create table directories (
    tenant_id uuid not null references tenants (id),
    provider text not null check (provider in ('gmail', 'outlook')),
    -- Where it is and as whom we look: what only the provider's own connector reads.
    settings jsonb not null,
    -- Who of it is wanted.
    rules jsonb not null,
    -- How much of what is there already is wanted of new mailboxes. Nothing: all of it.
    backfill_seconds bigint,
    interval_seconds bigint not null,
    -- It is looked at only when somebody asks for it.
    is_paused boolean not null default false,
    -- Grows with every change by somebody.
    version bigint not null default 1,
    -- When it is looked at again.
    next_at timestamptz not null,
    -- Grows whenever somebody begins to work on it; whoever did before writes nothing any more.
    token bigint not null default 0,
    -- Counts listings; a person has the number of the one that told of them last.
    run bigint not null default 0,
    is_listing boolean not null default false,
    -- The listing tells of everybody, not only of changes.
    is_whole boolean not null default true,
    begun_at timestamptz,
    cursors jsonb not null default '{}',
    -- When everybody was listed last.
    whole_at timestamptz,
    -- What came of the last time: done, held or failed.
    outcome text check (outcome in ('done', 'held', 'failed')),
    last_run jsonb,
    last_run_at timestamptz,
    -- What would happen, as it was found last.
    dry_run jsonb,
    dry_run_at timestamptz,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, provider)
);
create index directories_due on directories (next_at);

-- People that directories have told of.
create table users (
    id uuid not null,
    tenant_id uuid not null references tenants (id),
    provider text not null,
    provider_user_id text not null,
    -- Nothing, here and below: it is not known.
    address text,
    aliases jsonb,
    name text,
    unit text,
    is_suspended boolean,
    is_guest boolean,
    is_licensed boolean,
    is_there boolean not null default true,
    listed bigint not null,
    -- Whether their mailbox is looked at, and why not.
    state text not null check (state in ('active', 'inactive')),
    left_out text,
    mailbox_id uuid,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, id),
    unique (tenant_id, provider, provider_user_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);
-- A mailbox is nobody else's.
create unique index users_mailbox on users (tenant_id, mailbox_id) where mailbox_id is not null;
create index users_address on users (tenant_id, address);

-- A push names an account and no tenant. Where its name was taken, the mailbox of an account is called otherwise.
drop index mailboxes_pushed;
create index mailboxes_pushed on mailboxes ((coalesce(settings -> 'connection' ->> 'account', address)), provider);

-- Whose mailbox it is of, as their directory calls them: an address may pass to somebody else. Nothing: it is not known.
alter table push_subscriptions add column owner text;
