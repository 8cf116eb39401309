#!/usr/bin/env bash
# Builds Mailroom and shows it at work in a temporary folder, until Ctrl-C.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

need_cargo
need_packages build-essential curl
run cargo build --profile demo -p mailroom
# In our place: Ctrl-C is for the demo, which stops what it has started and removes its folder.
exec "$target/demo/mailroom" demo "$@"
