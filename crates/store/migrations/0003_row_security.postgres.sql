-- One tenant's rows for one tenant's transaction. The policies themselves, the rights and the functions stand in each_time/, which every
-- `migrate` states again; here is what they rest on: who owns the tables, and keys that tell nothing across tenants.

-- mailroom_system owns the tables: it makes partitions, and it sees the rows that it moves into them. Later migrations run as it.
do $$
declare
    relation text;
begin
    foreach relation in array array['tenants', 'api_keys', 'mailboxes', 'folders', 'ledger', 'packs', 'blobs', 'email_contents', 'emails',
        'emails_default', 'email_recipients', 'email_recipients_default', 'attachments', 'attachments_default', 'placements', 'email_search',
        'email_search_default', 'object_holds']
    loop
        -- A restored dump may be its already.
        if (select relowner from pg_class where oid = relation::regclass) <> 'mailroom_system'::regrole then
            execute format('alter table %I owner to mailroom_system', relation);
        end if;
    end loop;
    if (select proowner from pg_proc where oid = 'mailroom_now()'::regprocedure) <> 'mailroom_system'::regrole then
        alter function mailroom_now() owner to mailroom_system;
    end if;
end $$;
set local role mailroom_system;

-- A unique key sees the rows of all tenants. Where it does not begin with the tenant, a refused insert says that somebody has such a row.
-- Two stay as they are: a tenant's name, which only the system writes, and the hash of an API key, which must lead to one tenant and which
-- nobody can offer who does not have the key.
alter table placements drop constraint placements_mailbox_id_provider_message_id_fkey;
alter table ledger drop constraint ledger_pkey, add primary key (tenant_id, mailbox_id, provider_message_id);
alter table placements drop constraint placements_pkey, add primary key (tenant_id, mailbox_id, folder_id, provider_uid),
    add foreign key (tenant_id, mailbox_id, provider_message_id) references ledger (tenant_id, mailbox_id, provider_message_id);
alter table email_contents drop constraint email_contents_pkey, add primary key (tenant_id, mailbox_id, raw_sha256);
alter table folders drop constraint folders_pkey, add primary key (tenant_id, id),
    drop constraint folders_mailbox_id_provider_folder_id_key, add unique (tenant_id, mailbox_id, provider_folder_id);
alter table packs drop constraint packs_object_key_key, add unique (tenant_id, object_key);
-- Foreign keys rest on their unique (tenant_id, id), which therefore stays what it is.
alter table mailboxes drop constraint mailboxes_pkey;
alter table packs drop constraint packs_pkey;
alter table api_keys drop constraint api_keys_pkey;

-- An email and its parts have the same time bits, so they are always in partitions of the same range: parts refer to their email's own
-- partition. A foreign key to the parent would be looked up in all partitions, anew for each row.
alter table email_recipients drop constraint email_recipients_tenant_id_email_id_fkey;
alter table email_recipients drop constraint email_recipients_pkey, add primary key (tenant_id, email_id, position);
alter table attachments drop constraint attachments_tenant_id_email_id_fkey;
alter table email_search drop constraint email_search_tenant_id_email_id_fkey;
alter table email_recipients_default add foreign key (tenant_id, email_id) references emails_default (tenant_id, id);
alter table attachments_default add foreign key (tenant_id, email_id) references emails_default (tenant_id, id);
alter table email_search_default add foreign key (tenant_id, email_id) references emails_default (tenant_id, id);
