#!/usr/bin/env bash
# Our parser beside a second one (Python's `email`), field by field, over a corpus of mail. MAILROOM_FACTS_CORPUS names a
# corpus elsewhere than in ../shared/corpus; docs/facts.md has the rules of the comparison.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

corpus=${MAILROOM_FACTS_CORPUS:-$root/../shared/corpus}
[[ -d $corpus ]] || die "there is no corpus of mail at $corpus: name a folder of mail files in MAILROOM_FACTS_CORPUS"
need_cargo
need_packages build-essential python3
run cargo build --release -p mailroom
run python3 scripts/facts.py "$target/release/mailroom" "$corpus" "$@"
