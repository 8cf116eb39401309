#!/usr/bin/env bash
# Our parser beside a second one (Python's `email`), field by field, over a corpus of mail: the folder that
# MAILROOM_FACTS_CORPUS names. docs/facts.md has the rules of the comparison.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

corpus=${MAILROOM_FACTS_CORPUS:?name a folder of mail files}
[[ -d $corpus ]] || die "MAILROOM_FACTS_CORPUS must be a folder of mail files; $corpus is not one"
unset MAILROOM_FACTS_CORPUS # the program would take it for a setting
need_cargo
need_packages build-essential python3
run cargo build --release -p mailroom
run python3 scripts/facts.py "$target/release/mailroom" "$corpus" "$@"
