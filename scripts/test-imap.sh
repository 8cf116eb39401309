#!/usr/bin/env bash
# The IMAP tests against another server than the one of `make test`: a Cyrus, which offers OBJECTID, parts names with a
# slash, gives many folders one UIDVALIDITY and hands out for a while what is deleted. None of them is left out. It speaks
# JMAP, too, so the tests of JMAP at a real server run here, and only here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/processes.sh
source scripts/processes.sh

need_cargo
need_packages build-essential openssl
cyrus_address='' # not under the name that tests look for: that one may point at a Dovecot
use_service cyrus cyrus_address
export MAILROOM_TEST_IMAP_URL=$cyrus_address MAILROOM_TEST_IMAP_DIR=$servers/cyrus
MAILROOM_TEST_JMAP_URL=$(<"$servers/cyrus/jmap-url")
export MAILROOM_TEST_JMAP_URL
run cargo test -p providers -p engine --test it --no-fail-fast -- --quiet imap:: jmap::cyrus::
