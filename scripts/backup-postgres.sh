#!/usr/bin/env bash
# Backs up a Mailroom on PostgreSQL with PostgreSQL's own pg_dump: backup-postgres.sh DIR. Run where the program and its
# settings are; docs/backup.md says which login it needs and what the order is good for.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=${1:?usage: backup-postgres.sh DIR}
need_postgres_mailroom
# Holds the objects against the collector, dumps, copies the objects that the dump names, writes the manifest, lets go.
exec "$mailroom" backup --out "$folder"
