#!/usr/bin/env python3
"""clang-tidy over what changed: a finding on a changed line is an error, one elsewhere is silent.

check_tidy.py FOLDER    FOLDER: a configured build, whose compile_commands.json says how sources are compiled

What changed: since $CHECK_BASE, else since the merge base with origin/main, else since HEAD~1; what is not committed
counts too. A header is read through its own source, or through one that includes it. CUDA sources are not read. Most
changed files come first, and at most $TIDY_FILES of them (40, 0 for all): what is left out is named.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Not for clang: GCC's own flags, its precompiled headers, and sanitizers, which slow parsing down.
DROPPED = re.compile(r"-fexpensive-optimizations|-Winvalid-pch|-fsanitize=.*|-fno-sanitize.*|--param=.*"
                     r"|-Wno-(stringop-overflow|array-bounds|subobject-linkage)")


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def base_commit():
    """The commit to compare with, or None."""
    named = os.environ.get("CHECK_BASE")
    if named:
        if not git("rev-parse", "--verify", "--quiet", named + "^{commit}"):
            sys.exit(f"tidy: CHECK_BASE={named}: no such commit")
        return named
    merge_base = git("merge-base", "HEAD", "origin/main")
    if merge_base and merge_base != git("rev-parse", "HEAD"):
        return merge_base
    return git("rev-parse", "--verify", "--quiet", "HEAD~1")


def changed_lines(base):
    """Path → [first, last] line ranges, of sources and headers."""
    ranges = collections.defaultdict(list)
    path = None
    for line in (git("diff", "-U0", "--no-color", "--no-ext-diff", base, "--", "*.h", "*.cpp") or "").splitlines():
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") else None
        hunk = re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line)
        if hunk and path:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            if count:
                ranges[path].append([first, first + count - 1])
    for path in (git("ls-files", "--others", "--exclude-standard", "--", "*.h", "*.cpp") or "").splitlines():
        ranges[path].append([1, 1 << 30])
    return ranges


def commands_of(folder):
    """Source's path → its entry of compile_commands.json, its command as words for clang."""
    commands = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        paths = [pathlib.Path(entry["file"])]
        if paths[0].parent.name == "unity":  # a source that includes others, which are compiled as it is
            paths = [ROOT / path for path in re.findall(r'#include "bantam/(.+\.cpp)"', paths[0].read_text())]
        paths = [path for path in paths if path.suffix == ".cpp" and path.is_relative_to(ROOT)]
        if not paths:
            continue
        words = shlex.split(entry["command"])
        while words and words[0][0] != "-":  # the compiler, and what launches it
            words.pop(0)
        kept, skip = [], False
        for word in words:
            precompiled = word == "-include"  # the headers that a test names itself
            if not (skip or precompiled or DROPPED.fullmatch(word)):
                kept.append(word)
            skip = precompiled
        for path in paths:
            arguments = ["clang++", *[str(path) if word == entry["file"] else word for word in kept]]
            commands.setdefault(str(path.relative_to(ROOT)),
                                {"directory": entry["directory"], "file": str(path), "arguments": arguments})
    return commands


def sources_for(changed, commands):
    """The sources to read so that each changed file is read, and changed files that no source reaches."""
    chosen, unreached = {}, []
    for path, ranges in sorted(changed.items(), key=lambda item: -sum(last - first for first, last in item[1])):
        source = path if path in commands else re.sub(r"\.h$", ".cpp", path)
        if source not in commands and path.endswith(".h"):
            include = f'#include "{"" if path.startswith("tests/") else "bantam/"}{path}"'
            source = next((s for s in sorted(commands) if include in (ROOT / s).read_text()), None)
        if source in commands:
            chosen[source] = None
        else:
            unreached.append(path)
    return list(chosen), unreached


def run_tidy(tool, database, lines, source):
    filter_ = json.dumps([{"name": path, "lines": ranges} for path, ranges in lines.items()])
    done = subprocess.run([tool, "-p", database, "--quiet", "--line-filter=" + filter_,
                           "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-ignored-optimization-argument",
                           ROOT / source], capture_output=True, text=True)
    noise = re.compile(r"\d+ warnings? (generated|treated)|Suppressed \d+ warnings|Use -header-filter|^$")
    said = [line for line in (done.stdout + done.stderr).splitlines() if not noise.match(line)]
    return done.returncode, "\n".join(said)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tool = shutil.which("clang-tidy") or shutil.which("clang-tidy-14")
    folder = pathlib.Path(sys.argv[1])
    base = base_commit()
    for missing, what in ((not tool, "no clang-tidy here"), (not base, "no commit to compare with"),
                          (not (folder / "compile_commands.json").is_file(), f"{folder} is not configured")):
        if missing:
            print(f"tidy: SKIPPED: {what}")
            return 0
    commands = commands_of(folder)
    lines = changed_lines(base)
    sources, unreached = sources_for(lines, commands)
    most = int(os.environ.get("TIDY_FILES", "40")) or len(sources)
    with tempfile.TemporaryDirectory() as database:
        entries = [commands[source] for source in sources]
        (pathlib.Path(database) / "compile_commands.json").write_text(json.dumps(entries))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            results = list(threads.map(lambda source: run_tidy(tool, database, lines, source), sources[:most]))
    for said in dict.fromkeys(said for _, said in results if said):
        print(said)
    for what, paths in (("not compiled here", unreached), ("more than $TIDY_FILES", sources[most:])):
        if paths:
            print(f"tidy: NOT READ ({what}): {' '.join(paths)}")
    failed = sum(code != 0 for code, _ in results)
    print(f"tidy: {len(results)} sources read for the lines changed since {base[:12]}, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
