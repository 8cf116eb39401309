#!/usr/bin/env bash
# Builds Mailroom and shows it at work in a temporary folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

need_cargo
need_packages build-essential
run cargo build --release -p mailroom
run "$target/release/mailroom" demo --once "$@"
