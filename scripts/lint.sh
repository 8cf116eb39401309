#!/usr/bin/env bash
# Formatting, clippy, what the dependencies may be (deny.toml), and the links of the papers. All of them run, so one
# round shows everything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

deny_version=0.20.2

need_cargo
need_packages build-essential python3
for tool in fmt clippy; do
    cargo "$tool" --version >/dev/null 2>&1 || die "cargo $tool is missing: rustup component add rustfmt clippy"
done
deny=$target/tools/bin/cargo-deny
if [[ $("$deny" --version 2>/dev/null) != "cargo-deny $deny_version" ]]; then
    echo "building cargo-deny $deny_version, once"
    run cargo install --quiet --locked --root "$target/tools" "cargo-deny@$deny_version"
fi

failed=0
run python3 scripts/check-links.py || failed=1
run cargo fmt --all --check || failed=1
run cargo clippy --workspace --all-targets -- -D warnings || failed=1
# Advisories are left out: they need a database from the network, and a lint must not change its mind overnight.
run "$deny" --log-level warn check --hide-inclusion-graph bans licenses sources || failed=1
((failed)) || echo "lint: all clean"
exit "$failed"
