#!/usr/bin/env bash
# The first sync of a mailbox at a Dovecot on this machine: Mailroom, and beside it, in the same run, mbsync with notmuch,
# which end where Mailroom does: every message on this disk, and found by its words.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

need_packages dovecot-imapd isync notmuch openssl time
use_service dovecot MAILROOM_BENCH_IMAP_URL
port=${MAILROOM_BENCH_IMAP_URL##*:}
run "$target/shipped/mailroom" bench ingest --imap "imap://bench:pw@127.0.0.1:$port" "$@"

# Where our own databases are, for the same disk.
work=$(mktemp -d "$PWD/mailroom-bench-XXXXXX")
scratch=$work
mkdir "$work/mail"
cat >"$work/mbsyncrc" <<CONF
IMAPStore far
Host 127.0.0.1
Port $port
User bench
Pass pw
SSLType None
AuthMechs LOGIN

MaildirStore near
Path $work/mail/
Inbox $work/mail/INBOX

Channel bench
Far :far:
Near :near:
Patterns INBOX
Create Near
SyncState *
CONF
cat >"$work/notmuch-config" <<CONF
[database]
path=$work/mail
[user]
name=Bench
primary_email=bench@bench.test
[new]
tags=new
ignore=.mbsyncstate;.uidvalidity
CONF
export NOTMUCH_CONFIG=$work/notmuch-config
run command time -f 'mbsync: %e s, %U + %S CPU s, %M KB' mbsync -q -c "$work/mbsyncrc" bench
run command time -f 'notmuch new: %e s, %U + %S CPU s, %M KB' notmuch new --quiet
printf '%s messages are found by notmuch\n' "$(notmuch count)"
