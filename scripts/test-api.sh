#!/usr/bin/env bash
# The API against its own description: Schemathesis sends what the description allows and what it forbids and looks at every
# answer; a client that is generated from it does what a program would do. EXAMPLES per operation (default 100); SEED
# repeats a run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

# Made once, under another name until it is whole.
install_tools() {
    local list=scripts/api/tools.txt cache=${XDG_CACHE_HOME:-$HOME/.cache}/mailroom log
    mkdir -p "$cache"
    tools=$cache/api-tools-$(sha256sum "$list" | cut -c 1-12)
    [[ -e $tools ]] && return
    need_packages python3-venv
    echo "installing Schemathesis and a generator of clients, once"
    log=$(mktemp)
    rm -rf "$tools.new"
    if ! { python3 -m venv "$tools.new" && "$tools.new/bin/pip" install --no-deps -r "$list"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "could not install what $list names; the whole log is $log"
    fi
    rm -f "$log"
    mv "$tools.new" "$tools"
}

need_cargo
need_packages build-essential
install_tools
[[ -x ${MAILROOM_TEST_PROGRAM:-} ]] || run cargo build -p mailroom
scratch=$(mktemp -d)
run "$tools/bin/python" scripts/api/check.py "${MAILROOM_TEST_PROGRAM:-$target/debug/mailroom}" "$scratch" \
    "${EXAMPLES:-100}" "${SEED:-1}"
