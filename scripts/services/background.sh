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

# npm_folder NAME LIST: the folder with the npm packages that LIST names. It is made once, under another name until it is
# whole. What runs there does not run on Debian 12's Node, so each list has a Node of its own.
npm_folder() {
    local home log
    home=$(cache_folder "$1" "$2")
    if [[ ! -e $home ]]; then
        need_packages npm >&2
        echo "installing $1, once" >&2
        log=$(mktemp)
        rm -rf "$home.new"
        mkdir "$home.new"
        cp "$2" "$home.new/package.json"
        if ! (cd "$home.new" && npm install --ignore-scripts --no-audit --no-fund --before 2026-11-01) >"$log" 2>&1; then
            tail -n 20 "$log" >&2
            die "could not install $1; the whole log is $log"
        fi
        rm -f "$log"
        mv "$home.new" "$home"
    fi
    printf '%s\n' "$home"
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
