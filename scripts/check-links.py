#!/usr/bin/env python3
"""Checks that the papers point at things that exist: relative links and their #anchors, paths of this repository, paths
of Rust modules and tests, names of types and functions in backticks, and the test filters of our scripts, for cargo is
content with a filter that finds no test. Needs Python 3.9 and nothing else.

    scripts/check-links.py            every .md file that is tracked, or new and not ignored
    scripts/check-links.py FILE…      these only
"""

import re
import subprocess
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)")
FENCE = re.compile(r"^\s*(```+|~~~+)")
HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
CODE = re.compile(r"(`+)(.+?)\1")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.I)
REPO_PATH = re.compile(
    r"(?<![\w/.$-])(?:crates|docs|scripts|config|fixtures)/[\w./-]*\.(?:rs|md|sh|py|toml|sql|json|html|tsv)\b"
)
DOCS_PAGE = re.compile(r"(?<![\w/.$-])docs/[\w/-]+\.md\b")
RUST_PATH = re.compile(r"^[A-Za-z_]\w*(?:::(?:\w+|…\w*|\w*…))+$")
SNAKE_NAME = re.compile(r"^…?_?[a-z0-9]+(?:_[a-z0-9]+){2,}…?$")
TEST_FILTERS = re.compile(r"cargo test [^|]*? -- ([^|\n]*)")
CAMEL_NAME = re.compile(r"^(?:[A-Z][a-z0-9]+){2,}$")

# Names that are not ours: crates, and settings of other programs.
FOREIGN_CRATES = {"std", "core", "tokio", "axum", "clippy", "object_store", "serde"}
FOREIGN_NAMES = {"cpu_operator_cost", "max_locks_per_transaction"}


def git_files(*patterns):
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()})


@lru_cache(maxsize=None)
def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def prose(text):
    """Yields the number and text of each line outside of fenced and indented code."""
    fence, is_after_blank = None, True
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence):
                fence = None
            continue
        if mark:
            fence = mark[1]
            continue
        if line.startswith("    ") and is_after_blank:
            continue
        is_after_blank = not line.strip()
        yield number, line


@lru_cache(maxsize=None)
def anchors(path):
    """The anchors of a page, as GitHub makes them of its headings."""
    found, seen = set(), Counter()
    for _, line in prose(read(path)):
        found.update(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", line))
        heading = HEADING.match(line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def check_target(page, target):
    """What is wrong with the target of a link, or nothing."""
    if SCHEME.match(target) or target.startswith("//"):
        return None
    path, _, anchor = unquote(target).partition("#")
    found = page if not path else (ROOT / path.lstrip("/") if path.startswith("/") else page.parent / path).resolve()
    if not found.exists():
        return f"{target}: there is no such file"
    if ROOT not in found.parents and found != ROOT:
        return f"{target}: is outside of the repository"
    if anchor and found.suffix == ".md" and anchor not in anchors(found):
        return f"{target}: {found.relative_to(ROOT)} has no heading #{anchor}"
    return None


@lru_cache(maxsize=None)
def words_of_code():
    """Every word in the sources, and every name of a file or folder among them."""
    words = set()
    for path in git_files("*.rs", "*.sql", "*.toml", "*.sh", "*.py", "*.html", "*.js"):
        words.update((path.stem, *path.relative_to(ROOT).parts[:-1]))
        words.update(re.findall(r"\w+", read(path)))
    return words


@lru_cache(maxsize=None)
def rust_names():
    names = set()
    for path in git_files("crates/*.rs"):
        names.update((path.stem, path.parent.name), re.findall(r"\bfn (\w+)", read(path)))
    return names


def has_name(segment):
    if segment.startswith("…"):
        return any(word.endswith(segment[1:]) for word in words_of_code())
    if segment.endswith("…"):
        return any(word.startswith(segment[:-1]) for word in words_of_code())
    return segment in words_of_code()


def check_code(text):
    """What is wrong with what stands in backticks, or nothing."""
    if RUST_PATH.match(text) and text.split("::")[0] not in FOREIGN_CRATES:
        unknown = [segment for segment in text.split("::") if not has_name(segment)]
        if unknown:
            return f"`{text}`: nothing is called {', '.join(unknown)}"
    if (SNAKE_NAME.match(text) or CAMEL_NAME.match(text)) and text not in FOREIGN_NAMES and not has_name(text):
        return f"`{text}`: no source has this name"
    return None


def check_page(page):
    for number, line in prose(read(page)):
        plain = CODE.sub(lambda code: " " * len(code[0]), line)
        targets = LINK.findall(plain)
        reference = REFERENCE.match(plain)
        if reference:
            targets.append(reference[1])
        found = [check_target(page, target) for target in targets]
        found += [check_code(code[2]) for code in CODE.finditer(line)]
        yield from ((number, wrong) for wrong in found if wrong)
    yield from check_paths(page, REPO_PATH)


def check_paths(path, pattern):
    for number, line in enumerate(read(path).splitlines(), 1):
        for name in pattern.findall(line):
            if not (ROOT / name).exists():
                yield number, f"{name}: there is no such file"


def check_filters(script):
    """Checks that some test may match each filter: every segment of it is a part of a name in the code."""
    for number, line in enumerate(read(script).splitlines(), 1):
        for filters in TEST_FILTERS.findall(line):
            for text in re.findall(r"(?<![\w$\"{-])[a-z]\w*(?:::\w*)*", filters):
                if not all(any(part in name for name in rust_names()) for part in text.split("::")):
                    yield number, f"{text}: no test has this name"


def main(arguments):
    pages = [Path(name).resolve() for name in arguments] or git_files("*.md")
    sources = [] if arguments else git_files("*.rs", "*.sh", "*.toml", "*.sql")
    found = [(page, *wrong) for page in pages for wrong in check_page(page)]
    found += [(source, *wrong) for source in sources for wrong in check_paths(source, DOCS_PAGE)]
    found += [(script, *wrong) for script in sources if script.suffix == ".sh" for wrong in check_filters(script)]
    for path, number, wrong in sorted(set(found)):
        print(f"{path.relative_to(ROOT)}:{number}: {wrong}")
    if not found:
        print(f"links: {len(pages)} pages, all targets exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
