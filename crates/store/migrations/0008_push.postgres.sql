-- Mailboxes whose provider tells us when something happens in them.

-- How often a listing has told of the message.
alter table ledger add column told integer not null default 0;

-- What we have asked a mailbox's provider for, and whether it keeps to it.
create table push_watches (
    tenant_id uuid not null,
    mailbox_id uuid not null,
    -- Until when it tells us. Nothing: it was not asked yet, or has refused.
    expires_at timestamptz,
    renewed_at timestamptz,
    -- When it is asked again.
    next_at timestamptz not null,
    -- Grows when somebody wants it to be asked anew: what was asked for before that does not put it off.
    version bigint not null default 0,
    -- How often it was asked in vain since it last agreed, and why there is nothing to be had.
    failures integer not null default 0,
    problem text,
    last_push_at timestamptz,
    -- When a listing last found something, and how often since the last push of which none had told.
    news_at timestamptz,
    missed integer not null default 0,
    -- Since when nothing comes although it should; it was told.
    lost_at timestamptz,
    primary key (tenant_id, mailbox_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
) with (fillfactor = 70);
create index push_watches_due on push_watches (next_at);

-- A push names an account and no tenant.
create index mailboxes_pushed on mailboxes (address, provider);

-- What has come already, for what is delivered twice. Nobody's: one message may concern several tenants.
create table push_messages (
    provider text not null,
    message_id text not null,
    received_at timestamptz not null,
    primary key (provider, message_id)
);
create index push_messages_old on push_messages (received_at);
