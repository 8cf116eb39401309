# shellcheck shell=bash
# shellcheck disable=SC2154 # `dir` is the folder that the script was given
# What IMAP servers have in common: certificates, and a place for mail and sockets.

# shellcheck source=scripts/services/background.sh
source "$(dirname "${BASH_SOURCE[0]}")/background.sh"

# An authority of our own, and a certificate that it signed.
make_certificates() {
    local quiet=$dir/openssl.log
    {
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=Mailroom tests" \
            -keyout "$dir/ca.key" -out "$dir/ca.pem"
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=localhost" \
            -keyout "$dir/server.key" -out "$dir/server.csr"
        openssl x509 -req -in "$dir/server.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 3650 \
            -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n') -out "$dir/server.pem"
    } >"$quiet" 2>&1 || { cat "$quiet" >&2 && die "openssl made no certificate; what it said is above"; }
}

# make_home USER: a place for mail, USER's if we are root. Paths of sockets are short, and the server's own users must
# reach them: so a temporary folder, and DIR/location says where.
make_home() {
    home=$(mktemp -d "${TMPDIR:-/tmp}/mailroom-imap-XXXXXX")
    chmod 755 "$home"
    printf '%s\n' "$home" >"$dir/location"
    mkdir "$home/mail"
    if [[ $(id -u) == 0 ]]; then chown "$1:" "$home/mail"; fi
}

is_listening() {
    for ((i = 0; i < 100; i++)); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    return 1
}

stop_all() {
    local home=''
    if [[ -e $dir/location ]]; then home=$(<"$dir/location"); fi
    stop
    if [[ -n $home ]]; then rm -rf "$home"; fi
}
