#!/usr/bin/env bash
# The crash tests, many more times than in `make test`, and more large messages at once. A seed decides where each crash falls, so a failure can be repeated:
# MAILROOM_TEST_SEED=… make chaos. MAILROOM_TEST_CHAOS_ROUNDS sets how many crashes each test goes through.
# STORM=gmail leaves out everything but the storms over mailboxes at that provider.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

export MAILROOM_TEST_CHAOS_ROUNDS=${MAILROOM_TEST_CHAOS_ROUNDS:-50}
# Messages of 100 MB of each kind, all under way at once.
export MAILROOM_TEST_LARGE_MESSAGES=${MAILROOM_TEST_LARGE_MESSAGES:-8}
# Jobs of each tenant that floods the queue.
export MAILROOM_TEST_FLOOD=${MAILROOM_TEST_FLOOD:-100000}
# For how long a thousand notifications come in a second, with a kill among them.
export MAILROOM_TEST_PUSH_SECONDS=${MAILROOM_TEST_PUSH_SECONDS:-60}
export MAILROOM_TEST_SEED=${MAILROOM_TEST_SEED:-$((RANDOM * 32768 + RANDOM))}

need_cargo
need_packages build-essential redis-server strace
use_postgres MAILROOM_TEST_POSTGRES_URL fast
repeat="MAILROOM_TEST_SEED=$MAILROOM_TEST_SEED MAILROOM_TEST_CHAOS_ROUNDS=$MAILROOM_TEST_CHAOS_ROUNDS make chaos"
echo "chaos: $repeat"
if [[ -z ${STORM:-} ]]; then
    run cargo test -p mailroom --test it -- crash killed memory:: --skip jobs_killed --nocapture || die "chaos: failed; repeat with $repeat"
    # Quicker than a killed import, so there are more: at 50 rounds some 30,000 jobs on each database, for minutes.
    run env MAILROOM_TEST_CHAOS_ROUNDS=$((3 * MAILROOM_TEST_CHAOS_ROUNDS)) cargo test -p mailroom --test it -- jobs_killed --nocapture ||
        die "chaos: failed; repeat with $repeat"
    run cargo test -p store --test it -- jobs::model --nocapture || die "chaos: failed; repeat with $repeat"
    run cargo test -p jobs --test it -- fairness --nocapture || die "chaos: failed; repeat with $repeat"
fi
# Every fault at every call of Gmail and Outlook, on SQLite; `make test` has every second one. On PostgreSQL both have every tenth.
[[ -n ${STORM:-} ]] || run cargo test -p engine --test it -- table::each_fault || die "chaos: failed; repeat with $repeat"
# Storms over synced mailboxes: N of them, a minute each on both databases side by side, each with a seed of its own.
for ((round = 0; round < ${N:-3}; round++)); do
    seed=$((MAILROOM_TEST_SEED + round))
    run env MAILROOM_TEST_SEED=$seed MAILROOM_TEST_STORM_SECONDS="${MAILROOM_TEST_STORM_SECONDS:-60}" cargo test -p mailroom --test it -- "sync_chaos${STORM:+::$STORM}" --nocapture ||
        die "chaos: failed; repeat with MAILROOM_TEST_SEED=$seed MAILROOM_TEST_STORM_SECONDS=60 cargo test -p mailroom --test it -- sync_chaos${STORM:+::$STORM}"
done
