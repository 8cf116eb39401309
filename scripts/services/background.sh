# shellcheck shell=bash
# shellcheck disable=SC2154 # `dir` is the folder that the script was given
# For services that are one process: starting it in DIR, waiting until it says that it listens, stopping it.

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# cache_folder NAME FILE: where the programs of a service are installed, one folder per version of what FILE lists.
cache_folder() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/mailroom
    mkdir -p "$cache"
    printf '%s/%s-%s\n' "$cache" "$1" "$(sha256sum "$2" | cut -c 1-12)"
}

# launch COMMAND…: in a session of its own, since a ctrl-C is for our caller, who will stop us properly.
launch() {
    mkdir -p "$dir"
    : >"$dir/log" # there for whoever looks before the process does
    setsid "$@" >"$dir/log" 2>&1 </dev/null &
    echo $! >"$dir/pid"
}

# wait_for PATTERN: prints its first group once a line of the log matches.
wait_for() {
    local found
    for ((i = 0; i < 600; i++)); do
        found=$(sed -nE "s|.*$1.*|\\1|p" "$dir/log" | head -n 1)
        if [[ -n $found ]]; then
            printf '%s\n' "$found"
            return
        fi
        kill -0 "$(<"$dir/pid")" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 "$dir/log" >&2
    die "$(basename "$0" .sh) did not start; its log is above"
}

stop() {
    local pid
    if [[ -e $dir/pid ]]; then
        pid=$(<"$dir/pid")
        kill "$pid" 2>/dev/null || true
        for ((i = 0; i < 50; i++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -rf "$dir"
}
