#!/usr/bin/env bash
# Half an hour of the demo's traffic at 20 times its speed with a fault a second: the server's memory stays flat, no job is
# stuck, and in the end everything is there once. MINUTES shortens it; RATE, FAULTS and SEED make it another one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

need_cargo
need_packages build-essential
run cargo build --release -p mailroom
exec "$target/release/mailroom" demo --minutes "${MINUTES:-30}" --rate "${RATE:-20}" --faults-per-second "${FAULTS:-1}" --seed "${SEED:-1}"
