-- What callers of the API leave behind: what they changed, what they were answered, and where they want to be told.

-- A name is free again once its tenant is gone; one that is on hold cannot go.
alter table tenants add column deleted_at timestamptz, add column hold_reason text, add column erasing_at timestamptz;

-- Who changed what. Each entry's hash covers the one before, so that none can be altered, left out or put in unseen. What
-- is nobody's (lanes, schedules) stands under the system's id.
create table audit (
    tenant_id uuid not null,
    seq bigint not null,
    at timestamptz not null,
    -- JSON, but every byte of it counts.
    entry text not null,
    hash text not null,
    primary key (tenant_id, seq)
);

-- Taken by a unit as the last thing it does.
create table audit_heads (
    tenant_id uuid primary key,
    seq bigint not null,
    hash text not null
);

-- What a request with this key was answered, committed with what it did.
create table idempotency_keys (
    tenant_id uuid not null,
    key_hash bytea not null,
    -- Of method, address and body: the same key for something else is a mistake.
    request_hash bytea not null,
    status integer not null,
    headers jsonb not null,
    -- Nothing: it is in secret_id, for it shows a secret.
    body text,
    secret_id uuid,
    created_at timestamptz not null,
    primary key (tenant_id, key_hash)
);
create index idempotency_keys_old on idempotency_keys (created_at);

-- Emails that somebody deleted here, whatever their provider says.
create table discarded_emails (
    tenant_id uuid not null,
    email_id uuid not null,
    at timestamptz not null,
    primary key (tenant_id, email_id)
);

create table webhooks (
    tenant_id uuid not null references tenants (id),
    id uuid not null,
    url text not null,
    description text not null default '',
    -- Names of events; an empty list: all.
    types jsonb not null,
    mailbox_id uuid,
    with_backfill boolean not null default false,
    -- Secrets that sign, the newest first: [{"id": …, "until": …|null}].
    signing jsonb not null,
    state text not null default 'active' check (state in ('active', 'paused', 'disabled', 'removed')),
    state_reason text,
    -- The number of the last event that is delivered, or has a delivery of its own.
    cursor bigint not null,
    -- Since when nothing has come through, how often and why; and until when nothing is tried.
    failing_since timestamptz,
    failures integer not null default 0,
    last_error text,
    rest_until timestamptz,
    -- When the next delivery of its own is due.
    due_at timestamptz,
    -- Who delivers; the token grows with every change of holder and is checked by what the holder writes.
    holder text,
    token bigint not null default 0,
    held_until timestamptz,
    version bigint not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, id)
) with (fillfactor = 70);
create index webhooks_active on webhooks (tenant_id) where state = 'active';
create index webhooks_removed on webhooks (updated_at) where state = 'removed';

-- One event for one endpoint: what became of it.
create table webhook_deliveries (
    tenant_id uuid not null,
    id uuid not null,
    webhook_id uuid not null,
    -- Nothing: a ping.
    event_seq bigint,
    type text not null,
    state text not null check (state in ('waiting', 'delivered', 'failed')),
    attempts integer not null,
    next_at timestamptz,
    last_at timestamptz,
    last_status integer,
    -- The beginning of what was answered, or what went wrong.
    last_answer text,
    last_millis integer,
    created_at timestamptz not null,
    primary key (tenant_id, id),
    foreign key (tenant_id, webhook_id) references webhooks (tenant_id, id)
);
create index webhook_deliveries_log on webhook_deliveries (tenant_id, webhook_id, id);
create index webhook_deliveries_due on webhook_deliveries (tenant_id, webhook_id, next_at) where state = 'waiting';
create index webhook_deliveries_old on webhook_deliveries (created_at) where state <> 'waiting';
