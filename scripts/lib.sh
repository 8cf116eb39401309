# shellcheck shell=bash
# Where things are, and finding or installing the programs we need.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
[[ $target == /* ]] || target=$PWD/$target

die() {
    printf '%s\n' "$*" >&2
    exit 1
}

need_cargo() {
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.95 or later from https://rustup.rs"
}

# The folder of PostgreSQL's server programs; Debian keeps them out of PATH. Newest first, and 15 is the oldest we support.
postgres_bin() {
    local folder version
    if [[ -n ${MAILROOM_TEST_POSTGRES_BIN:-} ]]; then
        set -- "$MAILROOM_TEST_POSTGRES_BIN"
    else
        set --
        while read -r folder; do set -- "$@" "$folder"; done < <(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV)
        if command -v postgres >/dev/null; then set -- "$@" "$(dirname "$(readlink -f "$(command -v postgres)")")"; fi
    fi
    for folder; do
        [[ -x $folder/initdb && -x $folder/pg_ctl && -x $folder/postgres ]] || continue
        version=$("$folder/postgres" --version | grep -oE '[0-9]+' | head -n 1)
        if ((version >= 15)); then
            printf '%s\n' "$folder"
            return
        fi
    done
    return 1
}

has() {
    case $1 in
        postgresql) postgres_bin >/dev/null ;;
        build-essential) command -v cc >/dev/null ;;
        isync) command -v mbsync >/dev/null ;;
        xz-utils) command -v xz >/dev/null ;;
        dovecot-imapd) [[ -x /usr/lib/dovecot/imap ]] ;;
        python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# need_packages NAME…: Debian packages, installed when they are missing and we may.
need_packages() {
    local package missing=()
    for package; do has "$package" || missing+=("$package"); done
    ((${#missing[@]})) || return 0
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        die "missing ${missing[*]}: install with \`sudo apt-get install ${missing[*]}\`, then run this again"
    fi
    printf 'installing %s\n' "${missing[*]}"
    install_packages "${missing[@]}"
    for package in "${missing[@]}"; do
        has "$package" || die "$package was installed but is still not usable; PostgreSQL must be 15 or later"
    done
}

install_packages() (
    # The tests start servers of their own, so a package must not start its daemon: 101 means "not allowed".
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # Waits for another apt instead of failing beside it, and removes nothing that the new packages don't get along with.
    if ! { apt-get -o DPkg::Lock::Timeout=300 update &&
        apt-get -o DPkg::Lock::Timeout=300 install -y --no-remove --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        die "could not install $*; the whole log is $log"
    fi
    rm -f "$log"
)

# For upkeep of a Mailroom on PostgreSQL: leaves its program in `mailroom` and the server's own programs on PATH, newest
# first, because pg_dump must not be older than the server.
need_postgres_mailroom() {
    local bin
    mailroom=${MAILROOM:-$(command -v mailroom || true)}
    unset MAILROOM
    [[ -n $mailroom ]] || die "mailroom is not on PATH; put it there, or set MAILROOM to where it is"
    if bin=$(postgres_bin); then export PATH=$bin:$PATH; fi
    command -v pg_dump >/dev/null || die "pg_dump is missing: apt-get install postgresql-client"
    "$mailroom" config show --json | grep -qE '"key":"database.url","value":"postgres' ||
        die "database.url is not a PostgreSQL; for SQLite run \`mailroom backup\` and \`mailroom restore\` themselves"
}
