#!/usr/bin/env bash
# A PostgreSQL of one's own, on loopback, on a free port, without passwords. `start DIR fast|durable` prints its URL;
# `restart DIR` restarts it, `halt DIR` and `resume DIR` do so in two steps, `stop DIR` stops it and removes its data. A fast one does not wait for the disk: after a power cut tests just run again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: postgres.sh start DIR fast|durable, or postgres.sh restart|halt|resume|stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
bin=$(postgres_bin) || die "PostgreSQL 15 or later is missing: apt-get install postgresql"

# PostgreSQL refuses to run as root; the package made a user for it.
as_postgres() {
    if [[ $(id -u) == 0 ]]; then
        (cd / && exec setpriv --reuid postgres --regid postgres --init-groups env HOME=/ "$@")
    else
        "$@"
    fi
}

# Whether there is memory to spare for the data of a fast server: a test's database is a thousand files, which cost a disk's
# file system more than the test itself. They are a few hundred MB at a time, and the log grows to 2 GB.
has_memory() {
    local free
    [[ -w /dev/shm ]] || return 1
    free=$(df --output=avail --block-size=1G /dev/shm | tail -n 1)
    ((free >= 6)) && awk '$1 == "MemAvailable:" { exit $2 < 10000000 }' /proc/meminfo
}

# The folder for the data, given to the user that will run the server. That user may not be able to reach DIR (a clone
# under /root, say); then it is a temporary folder, as it is for data in memory. DIR/location says where.
make_home() {
    home=$dir/server
    if [[ $mode == fast ]] && has_memory; then
        home=$(mktemp -d /dev/shm/mailroom-postgres-XXXXXX)
    fi
    mkdir -p "$home"
    if [[ $(id -u) == 0 ]]; then
        chown postgres: "$home"
        if ! as_postgres test -w "$home"; then
            rmdir "$home"
            home=$(mktemp -d "${TMPDIR:-/tmp}/mailroom-postgres-XXXXXX")
            chown postgres: "$home"
        fi
        as_postgres test -w "$home" || die "the user postgres can't reach $home; set TMPDIR to a folder that it can"
    fi
    printf '%s\n' "$home" >"$dir/location"
}

options() {
    local listen="-c listen_addresses=127.0.0.1 -c port=$1 -c unix_socket_directories= -c max_connections=600"
    if [[ $mode == durable ]]; then
        # As a careful operator would set it on a machine with a few GB; everything that guards data is at its default.
        echo "$listen -c shared_buffers=512MB -c max_wal_size=4GB"
    else
        # Hundreds of small databases that live for seconds: room for their pages, and no upkeep that is worth its time.
        local brief="-c shared_buffers=1GB -c max_wal_size=2GB -c wal_level=minimal -c max_wal_senders=0 -c jit=off"
        echo "$listen $brief -c autovacuum_naptime=10min -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
    fi
}

# Below the ports that Linux hands out by itself. Whether one is free shows only when the server takes it.
try_ports() {
    local port
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        port=$((20000 + RANDOM % 12000))
        if as_postgres "$bin/pg_ctl" -D "$home/data" -l "$home/log" -o "$(options "$port")" -t 60 -w start >/dev/null 2>&1; then
            options "$port" >"$dir/options"
            printf 'postgres://postgres@127.0.0.1:%s/postgres\n' "$port"
            return
        fi
        grep -q 'Address already in use' "$home/log" || break
    done
    tail -n 20 "$home/log" >&2 || true
    die "PostgreSQL did not start; its log is above"
}

start() {
    dir=$(mkdir -p "$dir" && cd "$dir" && pwd)
    # A ctrl-C is for our caller, which will stop us properly once we know what we started.
    trap '' INT TERM HUP
    make_home
    as_postgres "$bin/initdb" -D "$home/data" -A trust -U postgres -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/initdb.log" 2>&1 ||
        die "PostgreSQL's initdb failed: $(tail -n 1 "$dir/initdb.log")"
    try_ports
}

stop() {
    local home pid
    [[ -e $dir/location ]] || { rm -rf "$dir"; return; }
    home=$(<"$dir/location")
    if [[ -e $home/data/postmaster.pid ]]; then
        pid=$(head -n 1 "$home/data/postmaster.pid")
        # The data goes away with it, so there is nothing to write back.
        as_postgres "$bin/pg_ctl" -D "$home/data" -m immediate -t 30 -w stop >/dev/null 2>&1 || kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -rf "$home" "$dir"
}

# The same server on the same port; whoever is connected is cut off.
restart() {
    local home
    home=$(<"$dir/location")
    as_postgres "$bin/pg_ctl" -D "$home/data" -l "$home/log" -m fast -t 60 -w restart >/dev/null
}

# The two halves of a restart.
halt() {
    local home
    home=$(<"$dir/location")
    as_postgres "$bin/pg_ctl" -D "$home/data" -m fast -t 60 -w stop >/dev/null
}

resume() {
    local home
    home=$(<"$dir/location")
    as_postgres "$bin/pg_ctl" -D "$home/data" -l "$home/log" -o "$(<"$dir/options")" -t 60 -w start >/dev/null
}

case $action:${3:-} in
    start:fast | start:durable)
        mode=$3
        start
        ;;
    restart:) restart ;;
    halt:) halt ;;
    resume:) resume ;;
    stop:) stop ;;
    *) die "$usage" ;;
esac
