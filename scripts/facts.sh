#!/usr/bin/env bash
# Our parser beside a second one (Python's `email`), field by field.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

need_cargo
need_packages build-essential python3
run python3 scripts/facts.py "$@"
