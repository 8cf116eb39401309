#!/usr/bin/env bash
# A PgBouncer in transaction mode before a PostgreSQL, on loopback, on a free port, with two connections per database so
# that whatever a transaction leaves behind meets somebody else. `start DIR POSTGRES_URL LOGIN…` prints HOST:PORT and takes
# these logins; `stop DIR` stops it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: pgbouncer.sh start DIR POSTGRES_URL LOGIN…, or pgbouncer.sh stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
command -v pgbouncer >/dev/null || die "PgBouncer is missing: apt-get install pgbouncer"

# It refuses to run as root; PostgreSQL's package made a user that it can run as.
as_postgres() {
    if [[ $(id -u) == 0 ]]; then
        (cd / && exec setpriv --reuid postgres --regid postgres --init-groups env HOME=/ "$@")
    else
        "$@"
    fi
}

write_settings() {
    local login
    cat >"$home/pgbouncer.ini" <<INI
[databases]
* = host=$host port=$port

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir =
auth_type = plain
auth_file = $home/users
pool_mode = transaction
default_pool_size = 2
max_client_conn = 500
logfile = $home/log
pidfile = $home/pid
INI
    for login in "${logins[@]}"; do printf '"%s" "%s"\n' "$login" "$login"; done >"$home/users"
}

start() {
    local server=${1#*@} try
    shift
    logins=("$@")
    host=${server%%:*} port=${server#*:} port=${port%%/*}
    mkdir -p "$dir"
    home=$(mktemp -d "${TMPDIR:-/tmp}/mailroom-pgbouncer-XXXXXX")
    printf '%s\n' "$home" >"$dir/location"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        try=$((20000 + RANDOM % 12000))
        write_settings "$try"
        if [[ $(id -u) == 0 ]]; then chown -R postgres: "$home"; fi
        if as_postgres pgbouncer -q -d "$home/pgbouncer.ini" 2>"$home/errors"; then
            printf '127.0.0.1:%s\n' "$try"
            return
        fi
    done
    cat "$home/errors" >&2
    die "PgBouncer did not start; what it said is above"
}

stop() {
    local home
    [[ -e $dir/location ]] || return 0
    home=$(<"$dir/location")
    if [[ -e $home/pid ]]; then kill -TERM "$(<"$home/pid")" 2>/dev/null || true; fi
    rm -rf "$home" "$dir"
}

case $action in
    start) start "${@:3}" ;;
    stop) stop ;;
    *) die "$usage" ;;
esac
