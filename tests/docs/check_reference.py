#!/usr/bin/env python3
"""The reference of the public API: doxygen writes it from the installed headers without a warning, and every type has a comment.

    check_reference.py --source TREE [--output FOLDER] [--doxygen PROGRAM]

Every type has a comment. Functions and fields need none where name and type say all. Exit code 77: no doxygen.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
NO_COMMENT = re.compile(r"warning: Compound \S.* is not documented")


def public_headers(source):
    """Paths of the installed headers, as cmake/PublicHeaders.cmake lists them."""
    text = (source / "cmake" / "PublicHeaders.cmake").read_text(encoding="utf-8")
    return re.findall(r"^  ([\w/.]+\.h)\b", text, re.MULTILINE)


def doxygen(program, source, headers, output, settings):
    """Runs doxygen over the headers; returns its warnings."""
    settings = {"INPUT": " ".join(headers), "OUTPUT_DIRECTORY": str(output), **settings}
    text = (source / "docs" / "Doxyfile").read_text(encoding="utf-8") + "".join(f"{key} = {value}\n" for key, value in settings.items())
    done = subprocess.run([program, "-"], input=text, cwd=source, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = [line for line in done.stdout.splitlines() if "warning:" in line or "error:" in line]
    return lines or ([] if done.returncode == 0 else [done.stdout])


def without_comment(program, source, headers):
    """Types that no comment describes."""
    with tempfile.TemporaryDirectory(prefix="bantam-reference-") as folder:
        lines = doxygen(program, source, headers, folder, {"EXTRACT_ALL": "NO", "WARN_IF_UNDOCUMENTED": "YES"})
    return [line for line in lines if NO_COMMENT.search(line)]


def self_test(program, source):
    """A type without a comment, and a comment about a parameter that does not exist, are noticed."""
    with tempfile.TemporaryDirectory(prefix="bantam-reference-") as name:
        header = Path(name) / "sample.h"
        header.write_text("/// @file\n\n/// f.\n/// @param y none\nint f(int x);\nstruct Bare { int a; };\n", encoding="utf-8")
        warnings = doxygen(program, source, [str(header)], name, {})
        bare = without_comment(program, source, [str(header)])
    if not any("'y'" in line for line in warnings) or not any("Bare" in line for line in bare):
        sys.exit(f"self-test: a wrong comment or a type without one was not noticed: {warnings} {bare}")


def main():
    """Writes the reference, and prints what is wrong with it."""
    parser = argparse.ArgumentParser(description="The reference of the public API.")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, help="folder for the reference; without it none is kept")
    parser.add_argument("--doxygen", default=shutil.which("doxygen"))
    arguments = parser.parse_args()
    if not arguments.doxygen:
        print("no doxygen: skipped (Debian's package doxygen)")
        return SKIPPED
    source, headers = arguments.source.resolve(), public_headers(arguments.source)
    self_test(arguments.doxygen, source)
    with tempfile.TemporaryDirectory(prefix="bantam-reference-") as scratch:
        output = arguments.output or Path(scratch)
        output.mkdir(parents=True, exist_ok=True)
        wrong = doxygen(arguments.doxygen, source, headers, output.resolve(), {}) + without_comment(arguments.doxygen, source, headers)
    for line in wrong:
        print(line.replace(f"{source}/", ""))
    if not wrong:
        print(f"{len(headers)} headers: no warning" + (f"; open {arguments.output}/html/index.html" if arguments.output else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
