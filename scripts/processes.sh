# shellcheck shell=bash
# Starting things so that nothing outlives the script.

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

children=() # the process groups under way
servers='' # the folder of the servers we started, each in a folder that is named as its script is
scratch='' # a file or folder to remove

# Runs a command in a process group of its own, so that an interrupted script can end it with everything it started.
run() {
    local status=0
    start "$@"
    wait "${children[-1]}" || status=$?
    unset 'children[-1]'
    return "$status"
}

# Starts a command in the same way and leaves its process id as the last of `children`; whoever waits for it takes it from there.
start() {
    set -m
    "$@" </dev/null &
    children+=("$!")
    set +m
}

# use_service NAME VARIABLE ARGUMENT…: leaves the URL of a server in VARIABLE. One that is set already points at a server
# of the user's own, and then nothing is installed or started.
use_service() {
    local name=$1 variable=$2 url
    shift 2
    if [[ -n ${!variable:-} ]]; then
        echo "using the $name of $variable"
        return
    fi
    [[ -n $servers ]] || claim_folder "$target/services"
    mkdir "$servers/$name"
    url=$("$root/scripts/services/$name.sh" start "$servers/$name" "$@" 9>&-) || exit 1
    export "$variable=$url"
    echo "started $name: $url"
}

use_postgres() {
    [[ -n ${!1:-} ]] || need_packages postgresql
    use_service postgres "$@"
}

stop_servers() {
    local folder
    for folder in "$1"/*/; do
        [[ -d $folder ]] || continue
        "$root/scripts/services/$(basename "$folder").sh" stop "$folder" || true
    done
    rm -rf "$1"
}

# A script holds the lock in its servers' folder while it lives. Where the lock is free, the script was killed outright.
stop_abandoned() {
    local left
    for left in "$1"/servers-*/; do
        [[ -e $left/lock ]] || continue
        (flock -n 8 && stop_servers "$left" 8>&-) 8<"$left/lock" || true
    done
}

claim_folder() {
    local fresh
    mkdir -p "$1"
    stop_abandoned "$1"
    fresh=$(mktemp -d "$1/new-XXXXXX")
    chmod 755 "$fresh" # a server may run as another user
    exec 9>"$fresh/lock"
    flock 9
    servers=$1/servers-${fresh##*-}
    mv "$fresh" "$servers" # under this name others look at it, and it is locked by now
}

clean_up() {
    local status=$? child
    trap '' INT TERM HUP # a second ctrl-C must not leave half of this undone
    for child in "${children[@]}"; do
        kill -TERM -- "-$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    if [[ -n $servers ]]; then stop_servers "$servers" 9>&-; fi
    if [[ -n $scratch ]]; then rm -rf "$scratch"; fi
    exit "$status"
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
