-- Deleted mail can be found and brought back, and erased mail leaves the file.

-- Emails that somebody brought back here, whether or not their provider has them.
create table restored_emails (
    tenant_id text not null,
    email_id text not null,
    at text not null,
    primary key (tenant_id, email_id)
);

create index emails_deleted on emails (tenant_id, id) where deleted_at is not null;

-- Counts erasures: all of them, those of which nothing is left in pages that are free and in the text index, and those after
-- which the whole file was written anew.
create table scrubs (
    wanted integer not null,
    done integer not null,
    compacted integer not null
);
insert into scrubs values (0, 0, 0);

-- Takes free pages for a moment, so that they are overwritten.
create table scrub_filler (bytes blob not null);

-- A merge that was begun goes on, however many small segments come meanwhile: they are merged before they outnumber its own.
insert into email_search (email_search, rank) values ('usermerge', 2);
