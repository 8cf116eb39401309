-- Kinds of waiting jobs that no live worker has registered, and since when that is so.
create table unregistered_job_kinds (
    kind text primary key,
    since text not null
) without rowid;
