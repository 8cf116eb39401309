#!/usr/bin/env bash
# A Cyrus of one's own, for IMAP and JMAP, on loopback, on free ports; any user may log in with the password `pw` and has
# an INBOX from the first login by IMAP on. `start DIR` prints imap://127.0.0.1:PORT, where STARTTLS is offered and not
# demanded. DIR/imaps-port is the port with TLS from the start, DIR/ca.pem the authority that signed the certificate,
# DIR/jmap-url the server for JMAP, without TLS. `stop DIR` stops it, and the mail is gone.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: cyrus.sh start DIR, or cyrus.sh stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/services/imap.sh
source "$root/scripts/services/imap.sh"

# Debian lets only one IMAP server be installed, so installing this one would remove a Dovecot, and would bring a mail
# server along. We only unpack it, which also needs no root.
unpack() {
    local archive
    fetch_archives cyrus-imapd cyrus-caldav cyrus-common libsasl2-modules-sql # the second has the httpd
    for archive in "$archives"/*.deb; do dpkg -x "$archive" "$home/cyrus"; done
    programs=$home/cyrus/usr/lib/cyrus/bin
    # Such as lib/x86_64-linux-gnu; some packages still have it outside of /usr.
    libraries=$(cd "$home/cyrus/usr" && dirname lib/*/libcyrus.so.0)
}

# fetch_archives PACKAGE…: into a folder of the cache that is for these packages, in the version that apt-get knows.
fetch_archives() {
    local fresh wanted=("$@")
    archives=${XDG_CACHE_HOME:-$HOME/.cache}/mailroom/cyrus-$(package_version "$1")-$(sha256sum <<<"$*" | cut -c 1-12)
    [[ ! -d $archives ]] || return 0
    mkdir -p "$(dirname "$archives")"
    fresh=$(mktemp -d "$archives-XXXXXX")
    mapfile -t wanted < <(with_libraries "${wanted[@]}")
    (cd "$fresh" && apt-get download "${wanted[@]}") >"$dir/log" 2>&1 </dev/null || {
        tail -n 20 "$dir/log" >&2
        rm -rf "$fresh"
        die "could not download ${wanted[*]}; what apt-get said is above. Perhaps it wants \`apt-get update\`"
    }
    mv -T "$fresh" "$archives" 2>/dev/null || rm -rf "$fresh" # another was quicker
}

package_version() {
    local found
    found=$(apt-cache show --no-all-versions "$1" 2>/dev/null | sed -n 's|^Version: ||p')
    [[ -n $found ]] || die "apt-get knows no $1: run \`apt-get update\`, on Debian or what is made from it"
    printf '%s\n' "$found"
}

# with_libraries PACKAGE…: these, and those of the libraries they need that are not installed.
with_libraries() {
    local package queue=("$@")
    local -A seen=()
    while ((${#queue[@]})); do
        package=${queue[0]} queue=("${queue[@]:1}")
        [[ -z ${seen[$package]:-} ]] || continue
        seen[$package]=1
        printf '%s\n' "$package"
        while read -r package; do
            dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q ' installed$' || queue+=("$package")
        done < <(apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$package" |
            sed -nE 's/^ *(Pre)?Depends: (lib[^ ]+)$/\2/p')
    done
}

# It does not run as root. Its package would make a user for it; `nobody` will do.
write_settings() {
    local user=nobody
    if [[ $(id -u) != 0 ]]; then user=$(id -un); fi
    cat >"$home/imapd.conf" <<CONF
cyrus_user: $user
cyrus_group: $(id -gn "$user")
configdirectory: $home/mail/config
defaultpartition: default
partition-default: $home/mail/spool
servername: localhost
altnamespace: yes
unixhierarchysep: yes
autocreate_quota: 0
allowplaintext: yes
failedloginpause: 0
sasl_mech_list: PLAIN LOGIN
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sql
sasl_sql_engine: sqlite3
sasl_sql_database: $home/mail/config/users
sasl_sql_select: SELECT 'pw'
tls_server_cert: $home/mail/server.pem
tls_server_key: $home/mail/server.key
skiplist_unsafe: yes
httpmodules: jmap
httpallowplaintext: yes
conversations: yes
conversations_db: twoskip
CONF
    # The programs do not inherit -C from their master.
    cat >"$home/cyrus.conf" <<CONF
START {
  recover cmd="$programs/ctl_cyrusdb -C $home/imapd.conf -r"
  idled cmd="$programs/idled -C $home/imapd.conf"
}
SERVICES {
  imap cmd="$programs/imapd -C $home/imapd.conf" listen="127.0.0.1:$1" proto="tcp4" prefork=1
  imaps cmd="$programs/imapd -C $home/imapd.conf -s" listen="127.0.0.1:$2" proto="tcp4" prefork=0
  http cmd="$programs/httpd -C $home/imapd.conf" listen="127.0.0.1:$3" proto="tcp4" prefork=0
}
EVENTS {
}
CONF
}

make_folders() {
    mkdir -p "$home/mail/config/socket" "$home/mail/spool"
    cp "$dir/server.pem" "$dir/server.key" "$home/mail"
    if [[ $(id -u) == 0 ]]; then chown -R nobody: "$home/mail"; fi
}

# Where a port is taken, Cyrus goes on without it: so we look before.
free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)) && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    printf '%s\n' "$port"
}

start() {
    local port imaps http
    need_packages openssl >&2
    dir=$(mkdir -p "$dir" && cd "$dir" && pwd)
    make_home nobody
    unpack
    make_certificates
    make_folders
    port=$(free_port) imaps=$(free_port) http=$(free_port)
    write_settings "$port" "$imaps" "$http"
    launch env LD_LIBRARY_PATH="$home/cyrus/usr/$libraries:$home/cyrus/$libraries" \
        SASL_PATH="$home/cyrus/usr/$libraries/sasl2:/usr/$libraries/sasl2" \
        "$programs/master" -D -C "$home/imapd.conf" -M "$home/cyrus.conf" -p "$home/mail/master.pid"
    if ! { is_listening "$port" && is_listening "$imaps" && is_listening "$http"; }; then
        tail -n 20 "$dir/log" >&2
        die "Cyrus did not start; its log is above"
    fi
    printf '%s\n' "$imaps" >"$dir/imaps-port"
    printf 'http://127.0.0.1:%s\n' "$http" >"$dir/jmap-url"
    printf 'imap://127.0.0.1:%s\n' "$port"
}

case $action in
    start) start ;;
    stop) stop_all ;;
    *) die "$usage" ;;
esac
