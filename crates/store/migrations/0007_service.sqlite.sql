-- What callers of the API leave behind: what they changed, what they were answered, and where they want to be told.

-- A name is free again once its tenant is gone; one that is on hold cannot go.
alter table tenants add column deleted_at text;
alter table tenants add column hold_reason text;
alter table tenants add column erasing_at text;

-- Who changed what. Each entry's hash covers the one before, so that none can be altered, left out or put in unseen. What
-- is nobody's (lanes, schedules) stands under the system's id.
create table audit (
    tenant_id text not null,
    seq integer not null,
    at text not null,
    -- JSON, but every byte of it counts.
    entry text not null,
    hash text not null,
    primary key (tenant_id, seq)
);

-- Taken by a unit as the last thing it does.
create table audit_heads (
    tenant_id text primary key not null,
    seq integer not null,
    hash text not null
);

-- What a request with this key was answered, committed with what it did.
create table idempotency_keys (
    tenant_id text not null,
    key_hash text not null,
    -- Of method, address and body: the same key for something else is a mistake.
    request_hash text not null,
    status integer not null,
    headers text not null,
    -- Nothing: it is in secret_id, for it shows a secret.
    body text,
    secret_id text,
    created_at text not null,
    primary key (tenant_id, key_hash)
);
create index idempotency_keys_old on idempotency_keys (created_at);

-- Emails that somebody deleted here, whatever their provider says.
create table discarded_emails (
    tenant_id text not null,
    email_id text not null,
    at text not null,
    primary key (tenant_id, email_id)
);

create table webhooks (
    tenant_id text not null references tenants (id),
    id text not null,
    url text not null,
    description text not null default '',
    -- Names of events; an empty list: all.
    types text not null,
    mailbox_id text,
    with_backfill integer not null default 0,
    -- Secrets that sign, the newest first: [{"id": …, "until": …|null}].
    signing text not null,
    state text not null default 'active' check (state in ('active', 'paused', 'disabled', 'removed')),
    state_reason text,
    -- The number of the last event that is delivered, or has a delivery of its own.
    cursor integer not null,
    -- Since when nothing has come through, how often and why; and until when nothing is tried.
    failing_since text,
    failures integer not null default 0,
    last_error text,
    rest_until text,
    -- When the next delivery of its own is due.
    due_at text,
    -- Who delivers; the token grows with every change of holder and is checked by what the holder writes.
    holder text,
    token integer not null default 0,
    held_until text,
    version integer not null default 1,
    created_at text not null,
    updated_at text not null,
    primary key (tenant_id, id)
);
create index webhooks_active on webhooks (tenant_id) where state = 'active';
create index webhooks_removed on webhooks (updated_at) where state = 'removed';

-- One event for one endpoint: what became of it.
create table webhook_deliveries (
    tenant_id text not null,
    id text not null,
    webhook_id text not null,
    -- Nothing: a ping.
    event_seq integer,
    type text not null,
    state text not null check (state in ('waiting', 'delivered', 'failed')),
    attempts integer not null,
    next_at text,
    last_at text,
    last_status integer,
    -- The beginning of what was answered, or what went wrong.
    last_answer text,
    last_millis integer,
    created_at text not null,
    primary key (tenant_id, id),
    foreign key (tenant_id, webhook_id) references webhooks (tenant_id, id)
);
create index webhook_deliveries_log on webhook_deliveries (tenant_id, webhook_id, id);
create index webhook_deliveries_due on webhook_deliveries (tenant_id, webhook_id, next_at) where state = 'waiting';
create index webhook_deliveries_old on webhook_deliveries (created_at) where state <> 'waiting';
