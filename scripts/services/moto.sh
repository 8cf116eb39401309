#!/usr/bin/env bash
# An S3 of one's own, on loopback, on a free port: moto's server, with a bucket `mailroom-test` and without looking at
# credentials. `start DIR` prints its URL; `stop DIR` stops it, and what it held in memory is gone.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: moto.sh start DIR, or moto.sh stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/services/background.sh
source "$root/scripts/services/background.sh"

# Made once, under another name until it is whole.
install() {
    local list=$root/scripts/services/moto.txt log
    home=$(cache_folder moto "$list")
    [[ -e $home ]] && return
    need_packages python3-venv
    echo "installing moto, once" >&2
    log=$(mktemp)
    rm -rf "$home.new"
    if ! { python3 -m venv "$home.new" && "$home.new/bin/pip" install --no-deps -r "$list"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "could not install moto; the whole log is $log"
    fi
    rm -f "$log"
    mv "$home.new" "$home"
}

start() {
    install
    # Not by its own script, which names the folder that it was made in.
    launch "$home/bin/python" -c 'from moto.server import main; main()' -H 127.0.0.1 -p 0
    url=$(wait_for 'Running on (http://127[0-9.:]+)')
    curl -fsS -X PUT "$url/mailroom-test" >/dev/null || die "moto does not make a bucket"
    printf '%s\n' "$url"
}

case $action in
    start) start ;;
    stop) stop ;;
    *) die "$usage" ;;
esac
