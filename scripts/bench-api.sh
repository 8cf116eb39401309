#!/usr/bin/env bash
# How fast the API answers over a million emails of a hundred tenants, on SQLite and on PostgreSQL: load from a second
# process, at a steady rate whether the server keeps up or not. Then how much memory idle followers of events take, and a
# download of 1 GB. Ends with one table, and the download.
#
# The databases are made once and kept (20 GB): in target/bench/api-sqlite and target/bench/api-postgres; remove them to
# have them made anew, and do so after four weeks: lists of recent mail are read another way than of old mail. Arguments go to `mailroom bench api`: --noisy has one tenant ask for a hundred times its share. EMAILS, TENANTS, RATE, SEARCH_RATE, SECONDS_EACH, CLIENTS and DOWNLOAD_MB make it smaller.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

emails=${EMAILS:-1000000} tenants=${TENANTS:-100} rate=${RATE:-500} search_rate=${SEARCH_RATE:-50}
seconds=${SECONDS_EACH:-20} clients=${CLIENTS:-5000} download_mb=${DOWNLOAD_MB:-1000}
program=${MAILROOM_BENCH_PROGRAM:-$target/shipped/mailroom}
bench=$target/bench
mkdir -p "$bench"

need_packages postgresql curl
if [[ -z ${MAILROOM_BENCH_PROGRAM:-} ]]; then
    need_cargo
    need_packages build-essential
    run cargo build --profile shipped -p mailroom
fi

servers_of_ours=() # processes to end with us
kept_postgres=''   # a folder whose server is halted with us, not removed
end_all() {
    local status=$?
    trap '' INT TERM HUP
    if ((${#servers_of_ours[@]})); then
        kill "${servers_of_ours[@]}" 2>/dev/null || true
        wait "${servers_of_ours[@]}" 2>/dev/null || true
    fi
    if [[ -n $kept_postgres ]]; then scripts/services/postgres.sh halt "$kept_postgres" || true; fi
    set +e
    (exit "$status") # which clean_up ends with
    clean_up
}
trap end_all EXIT

# Fills what MAILROOM_DATA_DIR and MAILROOM_DATABASE__URL name, unless it is there with as many emails.
seed() {
    local folder=$1
    if [[ -e $folder/keys && $(cat "$folder/seeded" 2>/dev/null) == "$emails $tenants" ]]; then
        echo "using the emails in $folder"
        return
    fi
    rm -f "$folder/keys" "$folder/seeded"
    run "$program" bench seed --emails "$emails" --tenants "$tenants" --keys "$folder/keys"
    echo "$emails $tenants" >"$folder/seeded"
}

# serve NAME PORT: leaves the process in `pid`.
serve() {
    MAILROOM_SERVER__LISTEN=127.0.0.1:$2 "$program" serve >"$bench/$1.log" 2>&1 </dev/null &
    pid=$!
    servers_of_ours+=("$pid")
    for _ in {1..200}; do
        if curl -fs -o /dev/null "http://127.0.0.1:$2/healthz"; then return; fi
        kill -0 "$pid" 2>/dev/null || die "mailroom serve ended: $(tail -n 5 "$bench/$1.log")"
        sleep 0.1
    done
    die "mailroom serve does not answer; its log is $bench/$1.log"
}

use_sqlite() {
    export MAILROOM_DATA_DIR=$bench/api-sqlite/data
    unset MAILROOM_DATABASE__URL
    if [[ $(cat "$bench/api-sqlite/seeded" 2>/dev/null) != "$emails $tenants" ]]; then rm -rf "$bench/api-sqlite"; fi
    mkdir -p "$bench/api-sqlite"
    seed "$bench/api-sqlite"
}

# A server of our own whose data stays, unless MAILROOM_BENCH_API_URL names an empty database.
use_postgres_kept() {
    local folder=$bench/api-postgres url
    if [[ $(cat "$folder/seeded" 2>/dev/null) != "$emails $tenants" ]]; then
        scripts/services/postgres.sh stop "$folder" || true
        rm -rf "$folder"
    fi
    if [[ -e $folder/url ]]; then
        scripts/services/postgres.sh resume "$folder"
        url=$(<"$folder/url")
        kept_postgres=$folder
    else
        url=$(scripts/services/postgres.sh start "$folder" durable)
        kept_postgres=$folder
        echo "$url" >"$folder/url"
    fi
    export MAILROOM_DATABASE__URL=$url MAILROOM_DATA_DIR=$folder/data
    run "$program" migrate
    seed "$folder"
}

# The largest attachment that anybody sends, and then some: how much memory it takes to send it out.
download() {
    local work key id before most
    work=$(mktemp -d "$bench/api-download-XXXXXX")
    # shellcheck disable=SC2034 # clean_up removes it
    scratch=$work
    export MAILROOM_DATA_DIR=$work/data
    unset MAILROOM_DATABASE__URL
    local size="$((download_mb * 2)) MB"
    export MAILROOM_LIMITS__MESSAGE_SIZE=$size MAILROOM_LIMITS__ATTACHMENT_SIZE=$size MAILROOM_LIMITS__DECODED_SIZE=$size
    {
        printf 'From: a@bench.test\r\nTo: b@bench.test\r\nSubject: large\r\nDate: Thu, 01 Oct 2026 00:00:00 +0000\r\n'
        printf 'MIME-Version: 1.0\r\nContent-Type: application/octet-stream; name="large.bin"\r\n'
        printf 'Content-Disposition: attachment; filename="large.bin"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
        head -c "$((download_mb * 1000000))" /dev/urandom | base64 -w 76
    } >"$work/large.eml"
    run "$program" import "$work/large.eml" --tenant large --mailbox large@bench.test
    rm "$work/large.eml"
    key=$("$program" key create --tenant large --name bench --scopes read 2>/dev/null)
    serve api-download 28027
    id=$(curl -fs -H "Authorization: Bearer $key" "http://127.0.0.1:28027/v1/emails" | grep -o '"id":"[^"]*"' | head -n 1 | cut -d '"' -f 4)
    id=$(curl -fs -H "Authorization: Bearer $key" "http://127.0.0.1:28027/v1/emails/$id" | grep -o '"attachments":\[{"id":"[^"]*"' | cut -d '"' -f 6)
    before=$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")
    curl -fs -o /dev/null -w 'downloaded %{size_download} bytes in %{time_total} s, the first after %{time_starttransfer} s\n' \
        -H "Authorization: Bearer $key" "http://127.0.0.1:28027/v1/attachments/$id/content"
    most=$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")
    echo "memory of the server at most: $((before / 1000)) MB before, $((most / 1000)) MB after"
}

use_sqlite
serve api-sqlite 28025
sqlite=$pid
use_postgres_kept
serve api-postgres 28026
postgres=$pid

both=(--url http://127.0.0.1:28025 --keys "$bench/api-sqlite/keys" --name SQLite --pid "$sqlite"
    --url http://127.0.0.1:28026 --keys "$bench/api-postgres/keys" --name PostgreSQL --pid "$postgres")
run "$program" bench api "${both[@]}" --what health,list,deep,mixed,search,sse --rate "$rate" --search-rate "$search_rate" \
    --seconds "$seconds" --clients "$clients" "$@"
download
