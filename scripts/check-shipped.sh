#!/usr/bin/env bash
# Builds the program as it is shipped and looks into it. Testing code, which kills it on demand, must not be there; and
# without the feature `lab` neither SQL of benchmarks nor simulators.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

program=$target/shipped/mailroom

# has_text TEXT: whether the program contains a text that some source file has.
has_text() {
    grep -rqF "$1" crates/*/src || die "no source has the text '$1' any more: look for another"
    grep -qaF "$1" "$program"
}

# build ARGUMENT…: builds the program, and fails if it has testing code.
build() {
    local text
    run cargo build --profile shipped -p mailroom "$@"
    has_text 'Archives the mail of all mailboxes' || die "the texts of $program cannot be read"
    for text in MAILROOM_TEST_FAILPOINTS mailroom_test_login 'the probe was told to'; do
        if has_text "$text"; then die "$program has testing code: it contains '$text'"; fi
    done
}

need_cargo
need_packages build-essential
build
has_text 'drop index jobs_ready' || die "with the feature lab there should be benchmarks in $program"
build --no-default-features
for text in 'drop index jobs_ready' 'Application is over its'; do
    if has_text "$text"; then die "without the feature lab, $program still contains '$text'"; fi
done
echo "shipped: no testing code; without lab, no benchmarks and no simulators"
