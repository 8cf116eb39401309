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
