#!/usr/bin/env bash
# Makes fixtures/upgrade/schema-NNNN.tar.xz of the schema that the program has now: a small populated database of each kind with
# what must be found in it. Run it before a release, so that every later migration is tried on data that this one made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

need_cargo
need_packages build-essential postgresql sqlite3 xz-utils
run cargo build -p mailroom
use_postgres MAILROOM_TEST_POSTGRES_URL fast
mailroom=$target/debug/mailroom
bin=$(postgres_bin)
mail=$root/fixtures/upgrade/mail
work=$(mktemp -d "$target/upgrade-XXXXXX")
database=mailroom_upgrade_$$
export PGOPTIONS='-c client_min_messages=warning'

# What a user might have done by now. The same steps are in crates/mailroom/tests/it/upgrade.rs.
fill() {
    "$mailroom" migrate
    "$mailroom" tenant create acme --plan vip
    "$mailroom" import "$mail/acme.mbox" --tenant acme --mailbox me@acme.test --folder INBOX
    "$mailroom" import "$mail/acme.mbox" --tenant acme --mailbox me@acme.test --folder Archive/2024
    "$mailroom" import "$mail/flagged.mbox" --tenant acme --mailbox me@acme.test --folder INBOX
    "$mailroom" import "$mail/odd.eml" --tenant acme --mailbox other@acme.test
    "$mailroom" import "$mail/beta.mbox" --tenant beta --mailbox you@beta.test
    "$mailroom" key create --tenant acme --name ci --scopes read,write >/dev/null 2>&1
    "$mailroom" verify --deep
}

# facts DIR: what every later schema must still say.
facts() {
    "$mailroom" verify --json >"$1/totals.jsonl"
    "$mailroom" tenant list --json >"$1/tenants.jsonl"
    "$mailroom" key list --tenant acme --json >"$1/keys-acme.jsonl"
    local tenant
    for tenant in acme beta; do
        "$mailroom" search '' --tenant "$tenant" --json --full >"$1/emails-$tenant.jsonl"
    done
}

# use DIR: the data of one kind of database is made there.
use() {
    export MAILROOM_DATA_DIR=$1/data
    mkdir -p "$1"
}

make_sqlite() {
    use "$work/sqlite"
    fill
    facts "$work/sqlite"
    # Otherwise the newest rows may be in the log only.
    sqlite3 "$MAILROOM_DATA_DIR/mailroom.db" 'pragma wal_checkpoint(truncate)' >/dev/null
    gzip -9nc "$MAILROOM_DATA_DIR/mailroom.db" >"$work/sqlite/mailroom.db.gz"
}

make_postgres() {
    local server=${MAILROOM_TEST_POSTGRES_URL%/*}
    use "$work/postgres"
    "$bin/psql" -qX "$MAILROOM_TEST_POSTGRES_URL" -c "create database $database"
    export MAILROOM_DATABASE__URL=$server/$database
    fill
    facts "$work/postgres"
    # Inserts, which any client can send; and without what only some versions of psql or the server understand.
    "$bin/pg_dump" --inserts --no-owner "$MAILROOM_DATABASE__URL" |
        grep -vE '^(\\(un)?restrict |SET transaction_timeout)' >"$work/postgres/dump.sql"
    "$bin/psql" -qX "$MAILROOM_TEST_POSTGRES_URL" -c "drop database $database with (force)"
    unset MAILROOM_DATABASE__URL
}

run make_sqlite
run make_postgres
version=$(printf '%04d' "$(MAILROOM_DATA_DIR=$work/sqlite/data "$mailroom" migrate --json | grep -oE '"version":[0-9]+' | grep -oE '[0-9]+')")
name=schema-$version
out=$root/fixtures/upgrade/$name.tar.xz
[[ ! -e $out ]] || die "$out is there already: a released schema is never made again; the new one is in $work"
for kind in sqlite postgres; do
    mv "$work/$kind/data/blobs" "$work/$kind/blobs"
    rm -r "$work/$kind/data"
done
chmod -R u=rwX,go=rX "$work"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --transform "s|^\.|$name|" -C "$work" -cf - . | xz -9e >"$out"
rm -r "$work"
echo "made $out; commit it"
