-- Tenants, mailboxes, the ledger, emails with their parts, blobs, and the text index.
-- Ids, times and hashes are text that reads like the API's: UUIDs, RFC 3339 with milliseconds, hex.

create table tenants (
    -- Small, because it is part of every emails.search_rowid; never used again after a tenant is gone.
    number integer primary key autoincrement check (number < 65535),
    id text not null unique,
    name text not null unique,
    plan_tier text not null default 'standard' check (plan_tier in ('standard', 'vip')),
    settings text not null default '{}',
    is_active integer not null default 1,
    version integer not null default 1,
    created_at text not null,
    updated_at text not null
);

create table api_keys (
    id text primary key not null,
    tenant_id text not null references tenants (id),
    name text not null,
    key_hash text not null unique,
    scopes text not null,
    expires_at text,
    last_used_at text,
    revoked_at text,
    created_at text not null,
    unique (tenant_id, id)
);

create table mailboxes (
    id text primary key not null,
    tenant_id text not null references tenants (id),
    provider text not null check (provider in ('files', 'imap', 'gmail', 'outlook')),
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
create index mailboxes_state on mailboxes (tenant_id, state);

create table folders (
    id text primary key not null,
    tenant_id text not null,
    mailbox_id text not null,
    provider_folder_id text not null,
    name text not null,
    -- What `label:` compares with: the name in lower case, whole and after the last delimiter.
    name_key text not null,
    last_segment_key text not null,
    role text,
    delimiter text,
    uid_validity integer,
    created_at text not null,
    unique (tenant_id, mailbox_id, id),
    unique (mailbox_id, provider_folder_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
);

-- One row per message that a provider showed us: the primary key is what makes ingestion happen once.
create table ledger (
    mailbox_id text not null,
    provider_message_id text not null,
    tenant_id text not null,
    state text not null check (state in ('queued', 'processing', 'processed', 'failed', 'skipped', 'gone')),
    reason text,
    revision text,
    attempts integer not null default 0,
    size_bytes integer,
    raw_sha256 text,
    email_id text,
    first_seen_at text not null,
    processing_started_at text,
    processing_completed_at text,
    primary key (mailbox_id, provider_message_id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
) without rowid;
create index ledger_state on ledger (mailbox_id, state, processing_started_at);

create table packs (
    id text primary key not null,
    tenant_id text not null references tenants (id),
    object_key text not null unique,
    state text not null check (state in ('writing', 'live', 'dead')),
    size_bytes integer,
    created_at text not null,
    unique (tenant_id, id)
);

create table blobs (
    tenant_id text not null,
    sha256 text not null,
    pack_id text not null,
    -- Where it lies in the pack's object, and how long it is there.
    pack_offset integer not null,
    stored_bytes integer not null,
    size_bytes integer not null,
    encoding text not null check (encoding in ('identity', 'zstd')),
    condemned_at text,
    created_at text not null,
    primary key (tenant_id, sha256),
    foreign key (tenant_id, pack_id) references packs (tenant_id, id)
) without rowid;
create index blobs_pack on blobs (tenant_id, pack_id);

-- The first email with these bytes in a mailbox; the same bytes again bind to it.
create table email_contents (
    mailbox_id text not null,
    raw_sha256 text not null,
    tenant_id text not null,
    email_id text not null,
    primary key (mailbox_id, raw_sha256),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id)
) without rowid;

create table emails (
    -- Tenant number (16 bits), receive second since 1990 (31), counter (16): the text index lists a tenant's newest
    -- emails first by walking this one range backwards, whatever else is in it.
    search_rowid integer primary key,
    id text not null,
    tenant_id text not null,
    mailbox_id text not null,
    provider text not null,
    provider_message_id text not null,
    internet_message_id text,
    message_id_hash text,
    thread_id text,
    conversation_id text,
    subject text,
    from_name text,
    from_address text,
    body_text text,
    body_html text,
    sent_at text,
    received_at text not null,
    processed_at text,
    processing_status text not null check (processing_status in ('processed', 'failed')),
    has_attachments integer not null,
    size_bytes integer not null,
    raw_sha256 text not null,
    raw_blob_sha256 text,
    headers text not null,
    defects text not null,
    deleted_at text,
    created_at text not null,
    unique (tenant_id, id),
    foreign key (tenant_id, mailbox_id) references mailboxes (tenant_id, id),
    foreign key (tenant_id, raw_blob_sha256) references blobs (tenant_id, sha256)
);
create index emails_newest on emails (mailbox_id, id desc);
create index emails_message_id on emails (mailbox_id, message_id_hash) where message_id_hash is not null;
create index emails_thread on emails (mailbox_id, thread_id, conversation_id)
    where thread_id is not null or conversation_id is not null;
create index emails_raw_blob on emails (tenant_id, raw_blob_sha256);

create table email_recipients (
    email_id text not null,
    position integer not null,
    tenant_id text not null,
    kind text not null check (kind in ('to', 'cc', 'bcc', 'reply_to')),
    address text not null,
    name text,
    primary key (email_id, position),
    foreign key (tenant_id, email_id) references emails (tenant_id, id)
) without rowid;

create table attachments (
    id text not null,
    tenant_id text not null,
    email_id text not null,
    position integer not null,
    part_path text not null,
    filename text,
    content_type text not null,
    sniffed_type text,
    size_bytes integer not null,
    sha256 text,
    md5 text,
    is_inline integer not null,
    content_id text,
    -- Of an attached message: its own subject, from, sent_at and message id.
    message text,
    status text not null check (status in ('stored', 'pending', 'failed', 'skipped')),
    blob_sha256 text,
    created_at text not null,
    primary key (tenant_id, id),
    foreign key (tenant_id, email_id) references emails (tenant_id, id),
    foreign key (tenant_id, blob_sha256) references blobs (tenant_id, sha256)
) without rowid;
create index attachments_email on attachments (tenant_id, email_id);
create index attachments_blob on attachments (tenant_id, blob_sha256);

-- Where a message is now. An email's folders and flags are the union over its live placements.
create table placements (
    mailbox_id text not null,
    folder_id text not null,
    provider_uid text not null,
    tenant_id text not null,
    provider_message_id text not null,
    email_id text,
    flags text not null default '[]',
    is_live integer not null default 1,
    created_at text not null,
    updated_at text not null,
    primary key (mailbox_id, folder_id, provider_uid),
    foreign key (tenant_id, mailbox_id, folder_id) references folders (tenant_id, mailbox_id, id),
    foreign key (mailbox_id, provider_message_id) references ledger (mailbox_id, provider_message_id)
) without rowid;
create index placements_email on placements (tenant_id, email_id);

-- Our own tokens, separated by spaces; see content::tokens. The text itself is in emails.
create virtual table email_search using fts5(
    tokens, content='', contentless_delete=1, tokenize="ascii tokenchars ':'"
);
