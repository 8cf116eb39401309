# shellcheck shell=bash
# Starting things so that nothing outlives the script.

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

child=''   # the process group under way
server=''  # the folder of the PostgreSQL we started
scratch='' # a file to remove

# Runs a command in a process group of its own, so that an interrupted script can end it with everything it started.
run() {
    local status=0
    set -m
    "$@" </dev/null &
    child=$!
    set +m
    wait "$child" || status=$?
    child=''
    return "$status"
}

# use_postgres VARIABLE fast|durable: leaves the URL of a PostgreSQL in VARIABLE. One that is set already points at a server
# of the user's own, and then nothing is installed or started.
use_postgres() {
    if [[ -n ${!1:-} ]]; then
        echo "using the PostgreSQL of $1"
        return
    fi
    need_packages postgresql
    local services=$target/services url
    mkdir -p "$services"
    stop_abandoned "$services"
    claim_folder "$services"
    url=$("$root/scripts/services/postgres.sh" start "$server" "$2" 9>&-) || exit 1
    export "$1=$url"
    echo "started PostgreSQL: $url"
}

# A script holds the lock in its server's folder while it lives. Where the lock is free, the script was killed outright.
stop_abandoned() {
    local left
    for left in "$1"/postgres-*/; do
        [[ -e $left/lock ]] || continue
        flock -n "$left/lock" "$root/scripts/services/postgres.sh" stop "$left" || true
    done
}

claim_folder() {
    local fresh
    fresh=$(mktemp -d "$1/new-XXXXXX")
    chmod 755 "$fresh" # the server may run as another user
    exec 9>"$fresh/lock"
    flock 9
    server=$1/postgres-${fresh##*-}
    mv "$fresh" "$server" # under this name others look at it, and it is locked by now
}

clean_up() {
    local status=$?
    trap '' INT TERM HUP # a second ctrl-C must not leave half of this undone
    if [[ -n $child ]]; then
        kill -TERM -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    if [[ -n $server ]]; then "$root/scripts/services/postgres.sh" stop "$server" 9>&- || true; fi
    if [[ -n $scratch ]]; then rm -f "$scratch"; fi
    exit "$status"
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
