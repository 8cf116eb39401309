-- Providers that call us for one thing of an account with a name, which may not be asked for twice.

-- That thing, whoever of the tenants has the account. Nobody's, for it is one for all of them.
create table push_subscriptions (
    provider text not null,
    address text not null,
    -- Of what the provider says with each call. Nothing: it was never begun.
    password_sha256 text,
    -- What the provider calls it. Nothing: it was begun, and nobody knows what came of that, or it has ended.
    name text,
    expires_at text,
    -- When it was asked for what it agreed to last.
    renewed_at text,
    -- Who asks has it alone until then, by this word.
    held_until text not null,
    claim text not null,
    primary key (provider, address)
) without rowid;
create unique index push_subscriptions_password on push_subscriptions (password_sha256);
create index push_subscriptions_name on push_subscriptions (provider, name);

-- Since when somebody wants the provider to be asked, whenever that was done last.
alter table push_watches add column wanted_at text;
-- Since then something may be gone that only a look at every folder shows.
alter table push_watches add column sweep_since text;
