#!/usr/bin/env bash
# Measures what is shipped, against databases that keep their promises: fsync is on everywhere.
# MAILROOM_BENCH_POSTGRES_URL points at a server of your own. `make bench ARGS=api` measures the API instead, over a
# million emails, which takes 20 GB of disk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

if [[ ${1:-} == api ]]; then
    shift
    exec scripts/bench-api.sh "$@"
fi
need_cargo
need_packages build-essential
run cargo build --profile shipped -p mailroom -p lab --bin mailroom --example floor
use_postgres MAILROOM_BENCH_POSTGRES_URL durable
run "$target/shipped/mailroom" bench ingest --postgres "$MAILROOM_BENCH_POSTGRES_URL" \
    --floor "$target/shipped/examples/floor" "$@"
run "$target/shipped/mailroom" bench jobs --postgres "$MAILROOM_BENCH_POSTGRES_URL"
scripts/bench-imap.sh
