#!/usr/bin/env python3
"""One word for one thing: finds words that say less than the field's own terms do, and names those terms.

check_words.py [--limit N] [PATH ...]    fails where N lines or more have such a word (default 20)

Reads the headers (outside tests/), the sources of cli/, README.md and docs/ (docs/lab apart, which is history), or the
files and folders named. Identifiers count word by word: `PendingSums` and `pending_sums` are "pending sums". Not read:
code blocks and `code` in Markdown, and string literals that are a key, a flag or a file's name.
"""
import argparse
import pathlib
import re
import subprocess
import sys

# (pattern, what to say instead). Patterns see lower-case words with single spaces between the parts of an identifier.
WORDS = [
    (r"stretch(es|ed)?", "checkpoint segment"),
    (r"(make|makes|made|making) (it |them )?again", "recomputed (rebuilt, for a cheap recipe)"),
    (r"(run|runs|ran|running) again", "recomputed"),
    (r"unread", "unused output"),
    (r"keepsakes?", "saved statistics, saved tensor"),
    (r"pending", "deferred norm, partial gradients, unsynchronised metrics, deferred free: each its own"),
    (r"(given|give|gives|gave|giving) back", "released"),
    (r"gives?", "returns, writes"),
    (r"takes", "accepts, reads, needs"),
    (r"leaves", "writes, keeps"),
    (r"hand(s|ed|ing)? on", "passes on"),
    (r"in front", "before"),
    (r"behind", "after"),
    (r"held(?! out\b)", "reserved"),  # a held-out set is the field's own term
    (r"pieces", "split-K partial sums, micro-batches, chunks"),
    (r"products? by warps?( ?groups?)?", "GEMM (mma.sync kernel, wgmma kernel)"),
]
PATTERNS = [(re.compile(rf"(?<![a-z]){pattern}(?![a-z])"), instead) for pattern, instead in WORDS]
SOURCES = {".h", ".cuh", ".cu", ".cpp", ".js", ".html"}
KEY = re.compile(r"""(["'])[\w./:*%{}<>=-]*\1""")  # a literal of one word: a key, a flag, a file


def words_of(text):
    """The words of a line in lower case, those inside identifiers apart."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text).replace("_", " ").replace("-", " ")
    return re.sub(r"\s+", " ", text).lower()


def read_lines(path):
    """(number, text without what is not read) of each line of a file."""
    markdown = path.suffix == ".md"
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if markdown and line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if not fenced:
            yield number, re.sub(r"(`+).+?\1", " ` ", line) if markdown else KEY.sub('""', line)


def found_in(path):
    """(line number, what is there, what to say instead) of each line of a file that has such a word."""
    for number, line in read_lines(path):
        text = words_of(line)
        for pattern, instead in PATTERNS:
            match = pattern.search(text)
            if match:
                yield number, match.group(0), instead
                break


def is_read(path):
    """Whether a file of the tree is one that this check reads."""
    floor = path.parts[0]
    if path.suffix == ".md":
        return str(path) == "README.md" or (floor == "docs" and path.parts[1] != "lab")
    if floor == "cli":
        return path.suffix in SOURCES
    return path.suffix in {".h", ".cuh"} and floor != "tests"


def files_of_tree():
    root = pathlib.Path(__file__).resolve().parent.parent
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode != 0:
        print("words: SKIPPED: no git checkout")
        sys.exit(0)
    paths = sorted(pathlib.Path(name) for name in listed.stdout.split("\0") if name)
    return [(root / path, path) for path in paths if is_read(path) and (root / path).is_file()]


def files_named(names):
    for path in map(pathlib.Path, names):
        inside = sorted(p for p in path.rglob("*") if p.suffix in SOURCES | {".md"}) if path.is_dir() else [path]
        yield from ((file, file) for file in inside)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="lines from which on it fails (20)")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    options = parser.parse_args()
    lines = 0
    files = list(files_named(options.paths)) if options.paths else files_of_tree()
    for file, shown in files:
        for number, found, instead in found_in(file):
            print(f"{shown}:{number}: '{found}'; say: {instead}")
            lines += 1
    print(f"words: {lines} lines in {len(files)} files (fails from {options.limit} on)")
    return 1 if lines >= options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
