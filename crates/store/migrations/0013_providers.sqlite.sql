-- Which providers there are, the program knows: it reads a provider's name where a row is made. The schema checks its form, so
-- that a new provider needs no migration.

-- SQLite cannot change a check. The rows stay as they are, so only the text of the tables is written anew: to copy the mailboxes
-- into another table would look up every email that refers to them.
pragma writable_schema = on;
update sqlite_schema set sql = replace(sql, 'check (provider in (''files'', ''imap'', ''gmail'', ''outlook'', ''scripted''))',
        'check (provider glob ''[a-z]*'' and provider not glob ''*[^a-z0-9_]*'')')
    where type = 'table' and name = 'mailboxes';
update sqlite_schema set sql = replace(sql, 'check (provider in (''gmail'', ''outlook''))',
        'check (provider glob ''[a-z]*'' and provider not glob ''*[^a-z0-9_]*'')')
    where type = 'table' and name = 'directories';
pragma writable_schema = reset;

-- Fails if a list of names is left. Making a table also lets every open connection read the schema again.
create table provider_lists (name text not null check (name = ''));
insert into provider_lists select name from sqlite_schema where type = 'table' and sql like '%check (provider in (%'
    and name <> 'provider_lists';
drop table provider_lists;
