#!/usr/bin/env bash
# shellcheck disable=SC2317 # `part` calls the functions that look unreachable
# Every test, part by part, with what they need: programs from packages, and a PostgreSQL, a Redis, an S3, an Azure Blob
# Storage, a Gmail and a Dovecot that are started here and stopped at the end. MAILROOM_TEST_POSTGRES_URL, MAILROOM_TEST_REDIS_URL,
# MAILROOM_TEST_S3_URL, MAILROOM_TEST_AZURE_URL, MAILROOM_TEST_GMAIL_URL and MAILROOM_TEST_IMAP_URL point at servers of your own instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

parts=()
failed=0
# Most tests wait most of the time, for servers and for each other's locks.
threads=${RUST_TEST_THREADS:-$(($(nproc) * 2))}

# part NAME COMMAND…: runs it, whatever became of the parts before, and notes how long it took.
part() {
    local name=$1 began=$SECONDS result=pass
    shift
    printf '\n== %s\n' "$name"
    run "$@" || { result=FAIL && failed=1; }
    parts+=("$(printf '%-20s %-6s %7s' "$name" "$result" "$(minutes $((SECONDS - began)))")")
    [[ $result == pass ]]
}

minutes() {
    printf '%d.%02d' $(($1 / 60)) $(($1 % 60 * 100 / 60))
}

# All test programs in one go: building crate by crate would compile shared dependencies again for each one's features.
build() {
    cargo test --workspace --lib --bins --tests --no-run --message-format=json-render-diagnostics >"$scratch"
}

# The test programs of one crate, from cargo's messages.
programs() {
    sed -n "s|.*\"package_id\":\"[^\"]*/crates/$1#.*\"test\":true},\"features\".*\"executable\":\"\([^\"]*\)\".*|\1|p" "$scratch"
}

# test_crate CRATE ARGUMENT…: as `cargo test` would, in the crate's folder, with its path in the environment.
test_crate() {
    local program status=0 found=()
    cd "$root/crates/$1"
    mapfile -t found < <(programs "$1")
    ((${#found[@]})) || die "cargo built no test program for $1"
    for program in "${found[@]}"; do
        CARGO_MANIFEST_DIR=$PWD RUST_TEST_THREADS=$threads "$program" --quiet "${@:2}" || status=1
    done
    return "$status"
}

# The same tests once more, with a pooler in between that hands each transaction another session. Not those that take
# long and are about the order of statements, which is the same there.
test_store_through_pgbouncer() {
    export MAILROOM_TEST_POSTGRES_POOLER=$pooler_address
    test_crate store --skip jobs::model --skip jobs::interleave
}

need_cargo
packages=(build-essential curl pgbouncer python3-venv redis-server strace)
# Asked for together: one line names all that is missing.
[[ -n ${MAILROOM_TEST_POSTGRES_URL:-} ]] || packages+=(postgresql)
[[ -n ${MAILROOM_TEST_AZURE_URL:-} && -n ${MAILROOM_TEST_GMAIL_URL:-} ]] || packages+=(npm)
[[ -n ${MAILROOM_TEST_IMAP_URL:-} ]] || packages+=(dovecot-imapd openssl)
need_packages "${packages[@]}"
use_postgres MAILROOM_TEST_POSTGRES_URL "$([[ ${MAILROOM_TEST_DURABLE:-} == 1 ]] && echo durable || echo fast)"
pooler_address='' # not under the name that tests look for: most of them talk to the server itself
use_service pgbouncer pooler_address "$MAILROOM_TEST_POSTGRES_URL" mailroom_test_login
use_service redis MAILROOM_TEST_REDIS_URL
use_service moto MAILROOM_TEST_S3_URL
use_service azurite MAILROOM_TEST_AZURE_URL
use_service emulate MAILROOM_TEST_GMAIL_URL
use_service dovecot MAILROOM_TEST_IMAP_URL
if [[ -d $servers/dovecot ]]; then export MAILROOM_TEST_IMAP_DIR=$servers/dovecot; fi
mkdir -p "$target"
scratch=$(mktemp "$target/built-XXXXXX")

if part build build; then
    for crate in crates/*/; do
        crate=$(basename "$crate")
        part "$crate" test_crate "$crate" || true
    done
    part "store, PgBouncer" test_store_through_pgbouncer || true
    MAILROOM_TEST_PROGRAM=$target/debug/mailroom part "api" scripts/test-api.sh || true
fi

printf '\n%-20s %-6s %7s\n' part result minutes
printf '%s\n' "${parts[@]}"
printf '%-20s %-6s %7s\n' all "$( ((failed)) && echo FAIL || echo pass)" "$(minutes "$SECONDS")"
exit "$failed"
