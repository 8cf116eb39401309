#!/usr/bin/env bash
# Builds the program as it is shipped and looks into it: failpoints, which kill it on demand, must not be there. And it must
# compile without the feature `lab`, which brings benchmarks, the demo and the simulators.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

variable=MAILROOM_TEST_FAILPOINTS
need_cargo
need_packages build-essential
grep -q "\"$variable\"" crates/store/src/failpoint.rs || die "the variable of the failpoints is no longer $variable"

run cargo build --release -p mailroom
program=$target/release/mailroom
grep -qaF 'Archives the mail of all mailboxes' "$program" || die "the texts of $program cannot be read"
if grep -qaF "$variable" "$program"; then die "$program has failpoints: a dependency enables the feature testing of store"; fi
run cargo check -p mailroom --no-default-features
echo "shipped: no failpoints"
