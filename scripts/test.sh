#!/usr/bin/env bash
# shellcheck disable=SC2317 # `part` calls the functions that look unreachable
# Every test, part by part, with what they need: programs from packages, and a PostgreSQL, a Redis, an S3, an Azure Blob
# Storage, a Gmail and a Dovecot that are started here and stopped at the end. MAILROOM_TEST_POSTGRES_URL, MAILROOM_TEST_REDIS_URL,
# MAILROOM_TEST_S3_URL, MAILROOM_TEST_AZURE_URL, MAILROOM_TEST_GMAIL_URL and MAILROOM_TEST_IMAP_URL point at servers of your own instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

results=() # a line for each part that has ended
failed=0
# Most tests wait most of the time, for servers and for each other's locks.
threads=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
# Parts at once: while the last slow tests of one end, those of another use the cores.
at_once=${MAILROOM_TEST_PARTS:-2}

# part NAME COMMAND…: runs it and notes how long it took.
part() {
    local name=$1 began=$SECONDS status=0
    shift
    printf '\n== %s\n' "$name"
    run "$@" || status=1
    note "$name" "$status" $((SECONDS - began))
    return "$status"
}

# note NAME STATUS SECONDS: a line for the table at the end.
note() {
    local result=pass
    (($2 == 0)) || { result=FAIL && failed=1; }
    results+=("$(printf '%-20s %-6s %7s' "$1" "$result" "$(minutes "$3")")")
}

minutes() {
    printf '%d.%02d' $(($1 / 60)) $(($1 % 60 * 100 / 60))
}

# Parts that run side by side: their names, and each one's command as words without spaces.
names=()
commands=()
queue() {
    names+=("$1")
    commands+=("${*:2}")
}

# Runs what was queued, in that order, so many at once; each one's output is printed in one piece when it has ended.
run_queue() {
    local next=0 index child
    local -A index_of=() began=()
    while ((next < ${#names[@]} || ${#children[@]})); do
        if ((next < ${#names[@]} && ${#children[@]} < at_once)); then
            # shellcheck disable=SC2086 # the words of a command
            start ${commands[next]} >"$scratch/$next.log" 2>&1
            index_of[${children[-1]}]=$next
            began[${children[-1]}]=$SECONDS
            next=$((next + 1))
            continue
        fi
        local status=0
        wait -n -p child "${children[@]}" || status=1
        index=${index_of[$child]}
        printf '\n== %s\n' "${names[index]}"
        cat "$scratch/$index.log"
        note "${names[index]}" "$status" $((SECONDS - began[$child]))
        forget "$child"
    done
}

# forget CHILD: it has ended and is no longer among the children.
forget() {
    local child left=()
    for child in "${children[@]}"; do
        [[ $child == "$1" ]] || left+=("$child")
    done
    children=("${left[@]}")
}

# All test programs in one go: building crate by crate would compile shared dependencies again for each one's features.
build() {
    cargo test --workspace --lib --bins --tests --no-run --message-format=json-render-diagnostics >"$scratch/built.json"
}

# The test programs of one crate, from cargo's messages.
programs() {
    sed -n "s|.*\"package_id\":\"[^\"]*/crates/$1#.*\"test\":true},\"features\".*\"executable\":\"\([^\"]*\)\".*|\1|p" "$scratch/built.json"
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

# Through a pooler that hands each transaction another session: what works so works without it. But for those that are
# about the order of statements, whose sessions must be their own.
test_store() {
    export MAILROOM_TEST_POSTGRES_POOLER=$pooler_address
    test_crate store --skip jobs::model --skip jobs::interleave --skip legal_hold::hold_waits
}

test_store_direct() {
    test_crate store jobs::model jobs::interleave legal_hold::hold_waits
}

test_api() {
    MAILROOM_TEST_PROGRAM=$target/debug/mailroom scripts/test-api.sh
}

# The longest first, so that nothing long is left for the end.
queue_tests() {
    local crate
    # The storm of testkit computes little, but waits for a circuit breaker now and then.
    queue mailroom test_crate mailroom
    queue engine test_crate engine --skip jmap::cyrus:: # at a server that `make test-imap` starts
    queue testkit test_crate testkit
    queue "store, PgBouncer" test_store
    queue "store, direct" test_store_direct
    queue api test_api
    for crate in crates/*/; do
        crate=$(basename "$crate")
        [[ $crate =~ ^(mailroom|engine|store|testkit)$ ]] || queue "$crate" test_crate "$crate"
    done
}

need_cargo
packages=(build-essential curl pgbouncer python3-venv redis-server strace xz-utils)
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
scratch=$(mktemp -d "$target/tests-XXXXXX")

if part build build; then
    tests_began=$SECONDS
    queue_tests
    run_queue
    results+=("$(printf '%-20s %-6s %7s' 'after the build' '' "$(minutes $((SECONDS - tests_began)))")")
fi

printf '\n%-20s %-6s %7s\n' part result minutes
printf '%s\n' "${results[@]}"
printf '%-20s %-6s %7s\n' all "$( ((failed)) && echo FAIL || echo pass)" "$(minutes "$SECONDS")"
exit "$failed"
