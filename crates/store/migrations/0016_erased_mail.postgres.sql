-- Deleted mail can be found and brought back.

-- Emails that somebody brought back here, whether or not their provider has them.
create table restored_emails (
    tenant_id uuid not null,
    email_id uuid not null,
    at timestamptz not null,
    primary key (tenant_id, email_id)
);

create index emails_deleted on emails (tenant_id, id) where deleted_at is not null;
