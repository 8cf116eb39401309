-- Which providers there are, the program knows: it reads a provider's name where a row is made. The schema checks its form, so
-- that a new provider needs no migration.
alter table mailboxes drop constraint mailboxes_provider_check,
    add constraint mailboxes_provider_check check (provider ~ '^[a-z][a-z0-9_]*$');
alter table directories drop constraint directories_provider_check,
    add constraint directories_provider_check check (provider ~ '^[a-z][a-z0-9_]*$');
