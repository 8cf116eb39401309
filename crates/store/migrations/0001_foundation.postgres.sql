-- Tenants, mailboxes, the ledger, emails with their parts, blobs, and the text index.
-- Native types, because people query this database by hand.

-- Time as SQL sees it. Only tests set the offset.
create function mailroom_now() returns timestamptz language sql volatile
    as $$ select clock_timestamp() + coalesce(nullif(current_setting('mailroom.clock_offset', true), '')::interval, interval '0') $$;

create table tenants (
    id uuid primary key,
    name text not null unique,
    plan_tier text not null default 'standard' check (plan_tier in ('standard', 'vip')),
    settings jsonb not null default '{}',
    is_active boolean not null default true,
    version integer not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null
);

create table api_keys (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    name text not null,
    key_hash bytea not null unique,
    scopes jsonb not null,
    expires_at timestamptz,
    last_used_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz not null,
    unique (tenant_id, id)
);

create table mailboxes (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    provider text not null check (provider in ('files', 'imap', 'gmail', 'outlook')),
    address text not null,
    secret_ref text,
    state text not null check (state in ('connecting', 'active', 'paused', 'needs_reauth', 'error', 'disconnected')),
    state_reason text,
    state_since timestamptz not null,
    settings jsonb not null default '{}',
    is_active boolean not null default true,
    version integer not null default 1,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    unique (tenant_id, id),
    unique (tenant_id, address)
);
create index mailboxes_state on mailboxes (tenant_id, state);

create table folders (
    id uuid primary key,
    tenant_id uuid not null,
    mailbox_id uuid not null,
    provider_folder_id text not null,
    name text not null,
    -- What `label:` compares with: the name in lower case, whole and after the last delimiter.
    name_key text not null,
    last_segment_key text not null,
    role text,
    delimiter text,
    uid_validity bigint,
    created_at timestamptz not null,
    unique (tenant_id, mailbox_id, id),
    unique (mailbox_id, provider_folder_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);

-- One row per message that a provider showed us: the primary key is what makes ingestion happen once.
create table ledger (
    mailbox_id uuid not null,
    provider_message_id text not null,
    tenant_id uuid not null,
    state text not null check (state in ('queued', 'processing', 'processed', 'failed', 'skipped', 'gone')),
    reason text,
    revision text,
    attempts integer not null default 0,
    size_bytes bigint,
    raw_sha256 bytea,
    email_id uuid,
    first_seen_at timestamptz not null,
    processing_started_at timestamptz,
    processing_completed_at timestamptz,
    primary key (mailbox_id, provider_message_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);
create index ledger_state on ledger (mailbox_id, state, processing_started_at);

create table packs (
    id uuid primary key,
    tenant_id uuid not null references tenants (id),
    object_key text not null unique,
    state text not null check (state in ('writing', 'live', 'dead')),
    size_bytes bigint,
    created_at timestamptz not null,
    unique (tenant_id, id)
);

create table blobs (
    tenant_id uuid not null,
    sha256 bytea not null,
    pack_id uuid not null,
    -- Where it lies in the pack's object, and how long it is there.
    pack_offset bigint not null,
    stored_bytes bigint not null,
    size_bytes bigint not null,
    encoding text not null check (encoding in ('identity', 'zstd')),
    condemned_at timestamptz,
    created_at timestamptz not null,
    primary key (tenant_id, sha256),
    foreign key (tenant_id, pack_id) references packs (tenant_id, id)
);
create index blobs_pack on blobs (tenant_id, pack_id);

-- The first email with these bytes in a mailbox; the same bytes again bind to it.
create table email_contents (
    mailbox_id uuid not null,
    raw_sha256 bytea not null,
    tenant_id uuid not null,
    email_id uuid not null,
    primary key (mailbox_id, raw_sha256),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);

-- Emails and their parts are cut along their ids, which begin with the receive time. Until finer partitions exist,
-- everything is in the default one.
create table emails (
    id uuid not null,
    tenant_id uuid not null,
    mailbox_id uuid not null,
    provider text not null,
    provider_message_id text not null,
    internet_message_id text,
    message_id_hash bytea,
    thread_id text,
    conversation_id text,
    subject text,
    from_name text,
    from_address text,
    body_text text,
    body_html text,
    sent_at timestamptz,
    received_at timestamptz not null,
    processed_at timestamptz,
    processing_status text not null check (processing_status in ('processed', 'failed')),
    has_attachments boolean not null,
    size_bytes bigint not null,
    raw_sha256 bytea not null,
    raw_blob_sha256 bytea,
    headers jsonb not null,
    defects jsonb not null,
    deleted_at timestamptz,
    created_at timestamptz not null,
    primary key (tenant_id, id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id),
    foreign key (tenant_id, raw_blob_sha256) references blobs (tenant_id, sha256)
) partition by range (id);
create table emails_default partition of emails default;
create index emails_newest on emails (mailbox_id, id desc);
create index emails_message_id on emails (mailbox_id, message_id_hash) where message_id_hash is not null;
create index emails_thread on emails (mailbox_id, thread_id, conversation_id)
    where thread_id is not null or conversation_id is not null;
create index emails_raw_blob on emails (tenant_id, raw_blob_sha256);

create table email_recipients (
    email_id uuid not null,
    position integer not null,
    tenant_id uuid not null,
    kind text not null check (kind in ('to', 'cc', 'bcc', 'reply_to')),
    address text not null,
    name text,
    primary key (email_id, position),
    foreign key (tenant_id, email_id) references emails (tenant_id, id)
) partition by range (email_id);
create table email_recipients_default partition of email_recipients default;

create table attachments (
    id uuid not null,
    tenant_id uuid not null,
    email_id uuid not null,
    position integer not null,
    part_path text not null,
    filename text,
    content_type text not null,
    sniffed_type text,
    size_bytes bigint not null,
    sha256 bytea,
    md5 text,
    is_inline boolean not null,
    content_id text,
    -- Of an attached message: its own subject, from, sent_at and message id.
    message jsonb,
    status text not null check (status in ('stored', 'pending', 'failed', 'skipped')),
    blob_sha256 bytea,
    created_at timestamptz not null,
    primary key (tenant_id, id),
    foreign key (tenant_id, email_id) references emails (tenant_id, id),
    foreign key (tenant_id, blob_sha256) references blobs (tenant_id, sha256)
) partition by range (id);
create table attachments_default partition of attachments default;
create index attachments_email on attachments (tenant_id, email_id);
create index attachments_blob on attachments (tenant_id, blob_sha256);

-- Where a message is now. An email's folders and flags are the union over its live placements.
create table placements (
    mailbox_id uuid not null,
    folder_id uuid not null,
    provider_uid text not null,
    tenant_id uuid not null,
    provider_message_id text not null,
    email_id uuid,
    flags jsonb not null default '[]',
    is_live boolean not null default true,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (mailbox_id, folder_id, provider_uid),
    foreign key (tenant_id, mailbox_id, folder_id) references folders (tenant_id, mailbox_id, id),
    foreign key (mailbox_id, provider_message_id) references ledger (mailbox_id, provider_message_id)
);
create index placements_email on placements (tenant_id, email_id);

-- Our own tokens as lexemes with positions; see content::tokens. Apart from emails, with what searches filter by, so that
-- a match reads narrow rows: a common word has thousands of them, and fetching each email took 4 times as long.
-- Each has the lexeme `:tenant:<id>`, so a search meets one tenant's entries only, however common its words are.
create table email_search (
    tenant_id uuid not null,
    email_id uuid not null,
    mailbox_id uuid not null,
    received_at timestamptz not null,
    is_live boolean not null default true,
    tokens tsvector not null,
    primary key (tenant_id, email_id),
    foreign key (tenant_id, email_id) references emails (tenant_id, id)
) partition by range (email_id);
create table email_search_default partition of email_search default;
create index email_search_tokens on email_search using gin (tokens);
-- A word that is not among the known common ones is taken to be in 1 of 200 emails, and the whole table is then read to
-- find the newest of them; with this many known, rare words are seen to be rare.
alter table email_search alter column tokens set statistics 1000;
alter table email_search_default alter column tokens set statistics 1000;

-- Compressing with the default method takes longer than everything else that an insert does.
do $$
declare
    part record;
begin
    for part in
        select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relname in ('emails', 'emails_default', 'email_search', 'email_search_default')
          and a.attname in ('body_text', 'body_html', 'headers', 'tokens')
          and c.relnamespace = current_schema()::regnamespace
    loop
        execute format('alter table %I alter column %I set compression lz4', part.relname, part.attname);
    end loop;
exception when feature_not_supported then
    raise notice 'this server is built without lz4; long texts are compressed with the default method';
end $$;
