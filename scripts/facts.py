"""Our parser beside a second one, field by field, over a corpus of mail.

The second parser is Python's `email`. docs/facts.md says what is compared and how; docs/facts-differences.tsv lists
every difference with the reason for it. A difference that is not listed, or a listed one that no longer occurs, is a
failure: that keeps the list true.
"""

import argparse
import codecs
import csv
import email.header
import email.message
import email.parser
import email.policy
import email.utils
import hashlib
import html.parser
import json
import mailbox
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "docs" / "facts-differences.tsv"
PAGE = ROOT / "docs" / "facts.md"
COLUMNS = ["file", "message", "field", "ours", "theirs", "reason"]
FIELDS = ["subject", "from", "to", "cc", "date", "message-id", "has text", "has HTML", "attachments"]
UNEXPLAINED = "unexplained"
SHOWN = 60  # characters of a value: enough to recognise it, too few to copy anyone's mail


class Problem(Exception):
    """One sentence for the user."""


# ---------------------------------------------------------------------------------------------- the corpus


class Message(NamedTuple):
    file: str
    index: int  # within an mbox; 0 elsewhere
    raw: bytes
    sha256: str


class Corpus(NamedTuple):
    messages: list
    files: int
    # Outlook's own formats: Python has nothing to compare with.
    without_counterpart: list


def read_corpus(folder, stored):
    """Splits the files with Python's means, not ours; `stored` holds the SHA-256 of every message we stored."""
    corpus = Corpus([], 0, [])
    files = sorted(path for path in folder.rglob("*") if path.suffix in READERS)
    for path in files:
        name = path.relative_to(folder).as_posix()
        for index, candidates in enumerate(READERS[path.suffix](path)):
            raw = next((raw for raw in candidates if sha256(raw) in stored), None)
            if raw is None:
                raise Problem(f"{name}, message {index}: Python finds it, but no email with these bytes was stored.")
            message = Message(name, index, raw, sha256(raw))
            (corpus.without_counterpart if path.suffix in (".msg", ".tnef") else corpus.messages).append(message)
    return corpus._replace(files=len(files))


def whole_file(path):
    yield [path.read_bytes()]


def apple_mail(path):
    """A line with the length, the message, then a property list."""
    length, _, rest = path.read_bytes().partition(b"\n")
    yield [rest[: int(length)]]


def mbox_messages(path):
    """Python's split. Dialects disagree on two things that its `mailbox` leaves alone: whether `>From ` was quoted, and
    whether the blank line before the next separator belongs to the message. Any of the four readings will do."""
    box = mailbox.mbox(path, create=False)
    for key in box.keys():
        raw = box.get_bytes(key)
        unquoted = re.sub(rb"(?m)^>(>*From )", rb"\1", raw)
        readings = [unquoted, raw]
        yield readings + [re.sub(rb"\r?\n\Z", b"", reading) for reading in readings]


READERS = {".eml": whole_file, ".msg": whole_file, ".tnef": whole_file, ".emlx": apple_mail, ".mbox": mbox_messages}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------------------------------------- our reading


def import_corpus(program, folder):
    """Imports into a folder that is gone afterwards; gives the import's summary and every email by its SHA-256."""
    with tempfile.TemporaryDirectory(prefix="mailroom-facts-") as data:
        # Settings of the user's own must not change what is measured.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAILROOM_")}
        environment |= {"MAILROOM_DATA_DIR": data}

        def mailroom(*arguments):
            command = [Path(program).resolve(), *arguments, "--tenant", "facts", "--json"]
            done = subprocess.run(command, cwd=data, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Problem(f"`mailroom {arguments[0]}` failed: {done.stderr.strip()}")
            return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

        summary = mailroom("import", str(folder), "--mailbox", "facts@mailroom.test")[-1]
        emails = mailroom("search", "", "--full")
    return summary, {mail["sha256"]: mail for mail in emails}


def our_facts(mail):
    return {
        "subject": squeeze(mail["subject"]),
        "from": tuple(lower([mail["from"]["address"]])) if mail["from"] else (),
        "to": lower(to["address"] for to in mail["to"]),
        "cc": lower(cc["address"] for cc in mail["cc"]),
        "date": datetime.fromisoformat(mail["sent_at"].replace("Z", "+00:00")) if mail["sent_at"] else None,
        "message-id": bare_id(mail["internet_message_id"]),
        "has text": bool((mail["body_text"] or "").strip()),
        "has HTML": bool((mail["body_html"] or "").strip()),
        "attachments": tuple(sorted((part["sha256"], part["content_type"]) for part in mail["attachments"])),
    }


# ---------------------------------------------------------------------------------------------- Python's reading


class Part(email.message.EmailMessage):
    """Attached messages and delivery reports stay whole while they are parsed: taken apart and written again by Python,
    they would not have the bytes, and so not the SHA-256, that were sent."""

    is_parsing = True

    def get_content_type(self):
        kind = super().get_content_type()
        return "application/octet-stream" if Part.is_parsing and kind.startswith("message/") else kind


def parse(raw):
    Part.is_parsing = True
    try:
        return email.parser.BytesParser(Part, policy=email.policy.default).parsebytes(raw)
    finally:
        Part.is_parsing = False


def their_facts(raw):
    message = parse(raw)
    texts, pages, attachments = sort_parts(message)
    return {
        "subject": squeeze(header_text(message, "subject")),
        "from": sender(message),
        "to": addresses(message, "to"),
        "cc": addresses(message, "cc"),
        "date": instant(header_text(message, "date")),
        "message-id": bare_id(next(header_values(message, "message-id"), None)),
        # Our text is made from the HTML where there is no other, so theirs may come from there, too.
        "has text": any(text.strip() for text in texts) or any(visible_text(page).strip() for page in pages),
        "has HTML": any(page.strip() for page in pages),
        "attachments": tuple(sorted(attachments)),
    }


def header_values(message, name):
    """As written, with raw 8-bit letters read as UTF-8 where they are: Python alone would show each as U+FFFD."""
    for key, value in message.raw_items():
        if key.lower() == name:
            data = re.sub(r"[\r\n]+", "", str(value)).encode("utf-8", "surrogateescape")
            try:
                yield data.decode("utf-8")
            except UnicodeDecodeError:
                yield data.decode(body_charset(message), "replace")


def body_charset(message):
    try:
        charset = codecs.lookup(message.get_content_charset("latin-1")).name
    except (LookupError, ValueError):
        charset = "iso8859-1"
    # What calls itself Latin-1 is Windows-1252, as every browser knows.
    return "cp1252" if charset in ("iso8859-1", "ascii") else charset


def header_text(message, name):
    """The first one, decoded. The new policy gives up on some broken headers; then the old one answers."""
    value = next(header_values(message, name), None)
    if value is None:
        return None
    try:
        return str(email.policy.default.header_factory(name, value))
    except Exception:  # whatever it stumbled over: IndexError, AttributeError, LookupError, ...
        return old_text(value)


def old_text(value):
    try:
        return str(email.header.make_header(email.header.decode_header(value)))
    except Exception:
        return value


def addresses(message, name):
    return lower(address for value in header_values(message, name) for address in addresses_in(name, value))


def sender(message):
    """The first address with a host: the comma in `From: Great, Offers <a@b.test>` makes `Great` one of its own."""
    found = addresses(message, "from")
    return tuple((hosted(found) or list(found))[:1])


def addresses_in(name, value):
    """By the new policy, unless the old functions see more: the new policy gives up where a name is glued to its
    `<address>`, and raises all kinds of errors."""
    old = [address for _, address in split_addresses(value)]
    try:
        new = [address.addr_spec for address in email.policy.default.header_factory(name, value).addresses]
    except Exception:
        new = []
    best = max(new, old, key=lambda found: len(hosted(found)))
    # A mailbox without an address (`From: <>`) names nobody.
    return [address for address in best if address not in ("", "<>")]


def split_addresses(value):
    """Newer Pythons refuse odd lists as a whole unless told not to; older ones do not know the word."""
    try:
        return email.utils.getaddresses([value], strict=False)
    except TypeError:
        return email.utils.getaddresses([value])


def hosted(addresses):
    return [address for address in addresses if re.search(r'[^@]@[^@"]+\Z', address)]


def instant(value):
    try:
        parsed = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    # Without a zone (`-0000`), RFC 5322 means UTC.
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


SIGNATURES = ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature")


def is_for_machines(kind):
    """Delivery reports, returned headers and other forms of the body: without a name, nobody calls them attachments."""
    is_for_people = ("text/calendar", "text/vcard", "text/x-vcard", "text/directory", "message/rfc822", "message/global",
                     "message/partial", "message/external-body")
    return kind.split("/")[0] in ("text", "message") and kind not in is_for_people


def sort_parts(message):
    """Each part without parts of its own is a text, a page of HTML, an attachment, or (signatures, reports) nothing."""
    texts, pages, attachments = [], [], []
    for part, parent in leaves(message):
        kind = part.get_content_type().split()[0]  # `text/plain charset=x`, for want of a semicolon
        is_named = part.get_filename() is not None or part.get_content_disposition() == "attachment"
        if kind == "text/html" and not is_named:
            pages.append(decoded_text(part))
        # A multipart in which Python finds no parts is what people see in it: text.
        elif kind.startswith("multipart/") or kind == "text/plain" and not is_named:
            texts.append(decoded_text(part))
        elif is_named or not (parent == "multipart/signed" and kind in SIGNATURES or is_for_machines(kind)):
            attachments.append((sha256(payload(part)), kind))
    return texts, pages, attachments


def leaves(part, parent=""):
    if part.is_multipart():
        for inner in part.get_payload():
            yield from leaves(inner, part.get_content_type())
    else:
        yield part, parent


def payload(part):
    encoding = part.get("content-transfer-encoding", "")
    if encoding != encoding.strip():  # `base64 ` is base64, too, but not to Python
        part.replace_header("content-transfer-encoding", encoding.strip())
    return part.get_payload(decode=True) or b""


def decoded_text(part):
    """Only whether there is any text matters, so a wrong charset does no harm unless it makes letters of spaces."""
    try:
        return payload(part).decode("utf-8")
    except UnicodeDecodeError:
        return payload(part).decode("cp1252", "replace")


class VisibleText(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.text, self.hidden = [], 0

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style", "title")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "title")

    def handle_data(self, data):
        if self.hidden <= 0:
            self.text.append(data)


def visible_text(page):
    reader = VisibleText()
    reader.feed(page)
    reader.close()
    return "".join(reader.text)


# ---------------------------------------------------------------------------------------------- the same form for both


def squeeze(text):
    """Folding and runs of white space carry no meaning; a blank header says as much as none."""
    return " ".join((text or "").split()) or None


def lower(values):
    return tuple("".join(value.split()).lower() for value in values)


def bare_id(text):
    return re.sub(r"[<>\s]", "", text or "") or None


# ---------------------------------------------------------------------------------------------- comparing


def compare(corpus, stored):
    """Rows of the list, without reasons, and how often each field agreed."""
    rows, agreed = [], Counter()
    for message in corpus.messages:
        ours, theirs = our_facts(stored[message.sha256]), their_facts(message.raw)
        for field in FIELDS:
            if ours[field] == theirs[field]:
                agreed[field] += 1
            else:
                rows.append([message.file, str(message.index), field, *shown(field, ours[field], theirs[field])])
    return rows, agreed


def shown(field, ours, theirs):
    if isinstance(ours, tuple):  # only what the other does not have
        left, right = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
        if not left and not right:
            return short("order: " + ", ".join(ours)), short("order: " + ", ".join(theirs))
        return short(listed(field, left)), short(listed(field, right))
    return short(ours), short(theirs)


def listed(field, values):
    if field == "attachments":
        return ", ".join(f"{kind} {digest[:8]}" for digest, kind in sorted(values.elements()))
    return ", ".join(values.elements())


def short(value):
    if isinstance(value, datetime):
        value = value.astimezone(timezone.utc).isoformat()
    text = "none" if value in (None, "") else str(value)
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


# ---------------------------------------------------------------------------------------------- the list


def read_list():
    if not LIST.exists():
        return {}
    with LIST.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None)
        next(lines)
        return {tuple(line[:5]): line[5] for line in lines}


def write_list(rows, reasons):
    with LIST.open("w", encoding="utf-8", newline="") as file:
        for row in [COLUMNS, *([*row, reasons.get(tuple(row), UNEXPLAINED)] for row in rows)]:
            file.write("\t".join(row) + "\n")


def check(rows, reasons, corpus):
    """What keeps the list from being true, one line each; about files that this corpus lacks it says nothing."""
    now, files = {tuple(row) for row in rows}, file_names(corpus)
    for row in rows:
        if reasons.get(tuple(row), UNEXPLAINED) == UNEXPLAINED:
            yield "unexplained: " + " | ".join(row)
    for row in reasons:
        if row not in now and row[0] in files:
            yield "no longer so: " + " | ".join(row)


def file_names(corpus):
    return {message.file for message in corpus.messages}


# ---------------------------------------------------------------------------------------------- the page


def table(corpus, agreed):
    total = len(corpus.messages)
    lines = ["| field       | agree | differ | agreement |", "|-------------|------:|-------:|----------:|"]
    for field in FIELDS:
        share = 100 * agreed[field] / total
        lines.append(f"| {field:<11} | {agreed[field]:>5} | {total - agreed[field]:>6} | {share:>7.2f} % |")
    return "\n".join(lines)


def update_page(fresh):
    """Replaces the table of the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(r"(?m)^\| field .*\n(\|.*\n)+", lambda _: fresh + "\n", page, count=1), encoding="utf-8")


def check_page(fresh, reasons, corpus):
    page = PAGE.read_text(encoding="utf-8")
    is_usual_corpus = {row[0] for row in reasons} <= file_names(corpus)
    if is_usual_corpus and fresh not in page:
        yield f"{PAGE.name} shows another table: run this with --update"
    for reason in sorted(set(reasons.values()) - {UNEXPLAINED}):
        if f"| `{reason}` |" not in page:
            yield f"{PAGE.name} does not explain `{reason}`"


# ---------------------------------------------------------------------------------------------- the command


def print_reasons(rows, reasons):
    counts = Counter(reasons.get(tuple(row), UNEXPLAINED) for row in rows)
    print(f"\n{sum(counts.values())} differences by reason ({PAGE.relative_to(ROOT)} explains each):")
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        print(f"{count:>5}  {reason}")


def check_complete(corpus, summary, stored):
    """Nothing was lost or made up between the files and the emails."""
    found = corpus.messages + corpus.without_counterpart
    read, failed = summary["read"], summary["failed"]
    if failed or read != len(found):
        raise Problem(f"Python finds {len(found)} messages, the import read {read} and failed on {failed}.")
    extra = stored.keys() - {message.sha256 for message in found}
    if extra:
        raise Problem(f"{len(extra)} emails have bytes that Python does not find in any file, like {min(extra)}.")


def run(options):
    folder = options.corpus.resolve()
    summary, stored = import_corpus(options.mailroom, folder)
    corpus = read_corpus(folder, stored)
    if not corpus.messages:
        raise Problem(f"There is no .eml, .emlx or .mbox file in {folder}.")
    check_complete(corpus, summary, stored)
    rows, agreed = compare(corpus, stored)

    reasons, fresh = read_list(), table(corpus, agreed)
    if options.update:
        write_list(rows, reasons)
        update_page(fresh)
        reasons = read_list()
    skipped = len(corpus.without_counterpart)
    print(f"{corpus.files} files, {summary['read']} messages; {skipped} are Outlook's, which Python cannot read\n")
    print(fresh)
    print_reasons(rows, reasons)
    problems = [*check(rows, reasons, corpus), *check_page(fresh, reasons, corpus)]
    if problems:
        print(f"\n{LIST.relative_to(ROOT)} and {PAGE.relative_to(ROOT)} are not true any more:", file=sys.stderr)
        print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description="Compares our mail parser with Python's over a corpus.")
    parser.add_argument("mailroom", help="the program to test")
    parser.add_argument("corpus", type=Path, help="a folder of mail files")
    parser.add_argument("--update", action="store_true", help="rewrite the list; reasons of unchanged rows stay")
    try:
        return run(parser.parse_args())
    except (Problem, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
