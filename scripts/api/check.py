"""Starts a Mailroom with a little mail and holds its API against /openapi.json: check.py PROGRAM FOLDER EXAMPLES SEED."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

PROGRAM, FOLDER, EXAMPLES, SEED = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
HERE = pathlib.Path(__file__).resolve().parent
MAIL = HERE.parent.parent / "fixtures" / "upgrade" / "mail"
# No undocumented status, no 5xx, no answer of another shape, and nothing is taken that the description forbids.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


ADDRESS = f"127.0.0.1:{free_port()}"
URL = f"http://{ADDRESS}"
ENVIRONMENT = os.environ | {
    "MAILROOM_DATA_DIR": str(FOLDER / "data"),
    "MAILROOM_SERVER__LISTEN": ADDRESS,
    "MAILROOM_LIMITS__FAILED_LOGINS": "1000000",
    "MAILROOM_LOG__LEVEL": "error",
}


def mailroom(*arguments):
    done = subprocess.run([PROGRAM, *arguments], env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"mailroom {' '.join(arguments)}: {done.stderr}")
    return done.stdout


# Not by their own scripts, which name the folder that they were made in.
SCHEMATHESIS = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
GENERATOR = [sys.executable, "-c", "from openapi_python_client.cli import app; app()"]


def ask(method, path, key, body=None, tenant=None):
    request = urllib.request.Request(URL + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {key}")
    request.add_header("Content-Type", "application/json")
    if tenant:
        request.add_header("X-Tenant-Id", tenant)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or "null")


def wait_until_it_answers(server):
    for _ in range(600):
        try:
            urllib.request.urlopen(URL + "/healthz").read()
            return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
    sys.exit("the server does not answer")


def there(key):
    """Things that are there, so that not every request is about something that is not."""
    acme, beta = (tenant["id"] for tenant in ask("GET", "/v1/tenants", key)["items"][:2])

    def first(path):
        return ask("GET", path, key, tenant=acme)["items"][0]["id"]

    email = first("/v1/emails?q=has:attachment")
    attachment = ask("GET", f"/v1/emails/{email}", key, tenant=acme)["attachments"][0]["id"]
    webhook = ask("POST", "/v1/webhooks", key, {"url": "https://hook.invalid/"}, acme)["webhook"]["id"]
    return acme, {
        "^/v1/emails/": email,
        "^/v1/attachments/": attachment,
        "^/v1/mailboxes/": first("/v1/mailboxes"),
        "^/v1/webhooks/": webhook,
        "^/v1/jobs/": first("/v1/jobs"),
        "^/v1/tenants/": beta,
    }


def schemathesis(key):
    acme, ids = there(key)
    # A stale `If-Match` is told before anything else.
    refusals = '["400", "401", "403", "404", "409", "412", "413", "415", "422", "429"]'
    lines = ["[checks.negative_data_rejection]", f"expected-statuses = {refusals}", ""]
    for path, value in ids.items():
        lines += ["[[operations]]", f'include-path-regex = "{path}"', f'parameters = {{ "path.id" = "{value}" }}', ""]
    (FOLDER / "schemathesis.toml").write_text("\n".join(lines))
    command = [*SCHEMATHESIS, "--config-file", str(FOLDER / "schemathesis.toml"), "run", URL + "/openapi.json"]
    command += ["-H", f"Authorization: Bearer {key}", "-H", f"X-Tenant-Id: {acme}", "--checks", ",".join(CHECKS)]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", SEED]
    # One: Python 3.11 compiles wrongly now and then when threads do so at once (its issue 106905).
    command += ["--workers", "1", "--continue-on-failure", "--warnings", "off", "--no-color"]
    # It never ends.
    command += ["--exclude-operation-id", "follow_events"]
    return subprocess.run(command, cwd=FOLDER).returncode


def generated_client(key):
    """A client that somebody generates works as it comes."""
    document = FOLDER / "openapi.json"
    document.write_bytes(urllib.request.urlopen(URL + "/openapi.json").read())
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [*GENERATOR, "generate", "--path", str(document), "--overwrite"]
    made = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True)
    if made.returncode != 0:
        print(made.stdout + made.stderr)
        return 1
    environment = os.environ | {"PYTHONPATH": str(FOLDER / "mailroom-client")}
    return subprocess.run([sys.executable, str(HERE / "client.py"), URL, key], env=environment).returncode


def main():
    for tenant, mail in (("acme", "acme.mbox"), ("beta", "beta.mbox")):
        mailroom("import", str(MAIL / mail), "--tenant", tenant, "--mailbox", f"me@{tenant}.test")
        mailroom("jobs", "enqueue", "--kind", "noop", "--tenant", tenant, "--payload", "{}")
    server = subprocess.Popen([PROGRAM, "serve"], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_it_answers(server)
        key = (FOLDER / "data" / "admin.key").read_text().strip()
        failed = generated_client(key)
        failed = schemathesis(key) or failed
    finally:
        server.terminate()
        server.wait()
    mailroom("audit", "verify")
    sys.exit(failed)


main()
