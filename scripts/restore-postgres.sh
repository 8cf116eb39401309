#!/usr/bin/env bash
# Restores a backup into the empty PostgreSQL database of database.url: restore-postgres.sh DIR. Objects first, then rows in
# one transaction, then the newest schema; at the end every byte is read back.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=${1:?usage: restore-postgres.sh DIR}
need_postgres_mailroom
"$mailroom" restore "$folder"
exec "$mailroom" verify --deep
