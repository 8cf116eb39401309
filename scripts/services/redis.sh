#!/usr/bin/env bash
# A Redis of one's own, on loopback, on a free port or the given one. `start DIR [PORT]` prints its URL; `stop DIR` stops
# it, and what it held in memory is gone.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: redis.sh start DIR [PORT], or redis.sh stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/services/background.sh
source "$root/scripts/services/background.sh"

# It cannot choose a port by itself; one that is taken costs another try.
start() {
    local port
    need_packages redis-server >&2
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        port=${1:-$((20000 + RANDOM % 12000))}
        launch redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --save '' --appendonly no
        if (wait_for '(Ready) to accept connections' >/dev/null 2>&1); then
            printf 'redis://127.0.0.1:%s\n' "$port"
            return
        fi
    done
    tail -n 20 "$dir/log" >&2
    die "Redis did not start; its log is above"
}

case $action in
    start) start "${@:3}" ;;
    stop) stop ;;
    *) die "$usage" ;;
esac
