-- What the collector looks for: blobs that nobody names, packs that are not live, and emails that lack bytes.
create index blobs_condemned on blobs (tenant_id, condemned_at) where condemned_at is not null;
create index packs_not_live on packs (tenant_id, state, created_at) where state <> 'live';
create index emails_incomplete on emails (tenant_id, id) where processing_status = 'failed';

-- While one of these has not expired, no object is deleted: somebody copies what a snapshot of this database names.
create table object_holds (
    id text primary key not null,
    expires_at text not null
);
