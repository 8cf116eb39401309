#!/usr/bin/env bash
# A Dovecot of one's own, on loopback, on free ports; any user may log in with the password `pw`. `start DIR` prints
# imap://127.0.0.1:PORT, where STARTTLS is offered and not demanded. DIR/imaps-port is the port with TLS from the start,
# DIR/ca.pem the authority that signed the certificate (for localhost and 127.0.0.1), DIR/mail where the mail is.
# `restart DIR` cuts everybody off and starts it again; `stop DIR` stops it, and the mail is gone.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage="usage: dovecot.sh start DIR, or dovecot.sh restart|stop DIR"
action=${1:?$usage}
dir=${2:?$usage}

# shellcheck source=scripts/services/imap.sh
source "$root/scripts/services/imap.sh"

# It runs as root with the package's users, or as whoever calls it; then nobody else has a part in it.
write_settings() {
    local internal login mail group
    if [[ $(id -u) == 0 ]]; then
        internal=dovecot login=dovenull mail=dovecot group=dovecot
    else
        internal=$(id -un) login=$(id -un) mail=$(id -un) group=$(id -gn)
    fi
    cat >"$home/dovecot.conf" <<CONF
base_dir = $home/run
state_dir = $home/state
log_path = /dev/stderr
protocols = imap
listen = 127.0.0.1
default_internal_user = $internal
default_internal_group = $group
default_login_user = $login
default_client_limit = 10000
default_process_limit = 1000
ssl = yes
ssl_cert = <$dir/server.pem
ssl_key = <$dir/server.key
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_cache_size = 1M
auth_failure_delay = 0
first_valid_uid = 0
mail_location = maildir:$home/mail/%u
mail_fsync = never
mail_plugins = zlib
mail_max_userip_connections = 10000
protocol imap {
  mail_plugins = zlib imap_zlib
}
namespace inbox {
  inbox = yes
  mailbox Drafts {
    special_use = \\Drafts
  }
  mailbox Junk {
    special_use = \\Junk
  }
  mailbox Sent {
    special_use = \\Sent
  }
  mailbox Trash {
    special_use = \\Trash
  }
}
service imap-login {
  chroot =
  inet_listener imap {
    port = $1
  }
  inet_listener imaps {
    port = $2
    ssl = yes
  }
}
service anvil {
  chroot =
}
service imap {
  process_limit = 10000
}
passdb {
  driver = static
  args = password=pw
}
userdb {
  driver = static
  args = uid=$mail gid=$group home=$home/mail/%u
}
CONF
}

start() {
    local port imaps
    need_packages dovecot-imapd openssl >&2
    dir=$(mkdir -p "$dir" && cd "$dir" && pwd)
    make_home dovecot
    ln -s "$home/mail" "$dir/mail"
    make_certificates
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        port=$((20000 + RANDOM % 12000)) imaps=$((20000 + RANDOM % 12000))
        write_settings "$port" "$imaps"
        launch "$(command -v dovecot || echo /usr/sbin/dovecot)" -F -c "$home/dovecot.conf"
        if (wait_for '(starting up) for imap' >/dev/null 2>&1) && is_listening "$port" && is_listening "$imaps"; then
            printf '%s\n' "$imaps" >"$dir/imaps-port"
            printf 'imap://127.0.0.1:%s\n' "$port"
            return
        fi
        kill "$(<"$dir/pid")" 2>/dev/null || true
    done
    tail -n 20 "$dir/log" >&2
    die "Dovecot did not start; its log is above"
}

# With its children, which would serve on for those who are logged in.
restart() {
    local home pid
    home=$(<"$dir/location") pid=$(<"$dir/pid")
    kill "$pid" 2>/dev/null || true
    # It waits for its children, which may be busy.
    for ((i = 0; i < 1200; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    launch "$(command -v dovecot || echo /usr/sbin/dovecot)" -F -c "$home/dovecot.conf"
    (wait_for '(starting up) for imap' >/dev/null)
    is_listening "$(sed -n 's/^ *port = //p' "$home/dovecot.conf" | head -n 1)" || die "Dovecot does not listen any more"
}

case $action in
    start) start ;;
    restart) restart ;;
    stop) stop_all ;;
    *) die "$usage" ;;
esac
