-- When a look at a mailbox last found something: those in which nothing happens are looked at less often.
alter table sync_states add column news_at text;

-- What was asked of providers for a tenant, by the hour.
create table provider_usage (
    tenant_id text not null references tenants (id),
    provider text not null,
    -- When the hour began.
    hour text not null,
    calls integer not null,
    bytes integer not null,
    primary key (tenant_id, provider, hour)
) without rowid;
create index provider_usage_hour on provider_usage (hour);

-- Whose looks wait for long: no more are asked for until those are over.
create index jobs_polls on jobs (tenant_id) where kind = 'poll_mailboxes';

-- Whether a mailbox was given up: that is asked at each failure.
create index finished_jobs_dead_keys on finished_jobs (tenant_id, kind, unique_key) where state = 'dead' and unique_key is not null;
