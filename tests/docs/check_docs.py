#!/usr/bin/env python3
"""Documentation checks: the marked commands of a page run and print what the page says; links resolve.

    check_docs.py run --source TREE --program BANTAM [--examples FOLDER] PAGE…   runs the marked blocks of each page
    check_docs.py show --source TREE --program BANTAM PAGE   the same, printing each command and its real output
    check_docs.py update --source TREE --program BANTAM PAGE…   writes today's numbers into the blocks marked `exact`
    check_docs.py links --source TREE                        every relative link, #anchor and `folder/file.h` of README and docs/
    check_docs.py self-test                                  a changed expected line, exit code or link must fail

Marks are HTML comments on the line before a fenced block, which GitHub does not show:

    <!-- test -->           a ```sh block, which must exit with 0; a ```text block that follows is its expected output
    <!-- test: exit 4 -->   the same, with another exit code
    <!-- test: exact -->    the same, and the numbers have to be equal, too: plans, counts of parameters (also `exit 4, exact`)
    <!-- file: net.yaml --> the block is written to that file, for the commands that follow
    <!-- new file: a/b.h --> anywhere on a page: `a/b.h` is a file that the reader is to write, so it need not be there

A page's blocks run in order in a temporary folder with the tree's configs/, benchmarks/, examples/ and build/ (the program and the examples' programs, by
default those beside it), without a GPU. Output is compared in shape: numbers
with their units (also byte units and times), absolute paths, rules of dashes and white space match whatever stands there; `…` matches the rest
of a line, and alone on a line any number of lines. Everything else has to be equal.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

MARK = re.compile(r"^\s*<!--\s*(test|file)\s*(?::\s*(.*?))?\s*-->\s*$")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\w*)(?:\s[^`]*)?$")
NEW_FILE = re.compile(r"<!--\s*new file:\s*(\S+)\s*-->")  # a file that the page has its reader write
FILE_NAME = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:h|cpp|cu|cuh|py|sh|md|yaml|cmake|txt))`")
PLACEHOLDER = re.compile(r"(?:^|[/_])[A-Z]{3,}(?:[/_]|\.(?!md$))")
NUMBER = re.compile(
    r"(?<![A-Za-z_])[+-]?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?:\s?(?:[KMGT]iB|B|ms|us|ns|s|min|h)(?!\w)|\s?%|[KMGk](?!\w))?"
)
SECONDS_A_BLOCK = 120


class DocsError(Exception):
    """A page that does not say what is so."""


@dataclass
class Block:
    """A marked block of a page: a file to write, or commands with the output that the page shows."""

    line: int
    kind: str
    argument: str
    text: list[str]
    expected: list[str] | None = None
    expected_line: int = 0

    @property
    def exact(self):
        """Whether the page's numbers have to be those of the output."""
        return "exact" in self.argument.split(", ")


@dataclass
class Page:
    """What a page has of interest, read once."""

    blocks: list[Block] = field(default_factory=list)
    links: list[tuple[int, str]] = field(default_factory=list)
    files: list[tuple[int, str]] = field(default_factory=list)
    new_files: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)


def fences(lines):
    """Yields (first line's index, language, text) of each fenced block."""
    start, fence, language = None, "", ""
    for i, line in enumerate(lines):
        match = FENCE.match(line)
        if start is None and match:
            start, fence, language = i, match[1], match[2]
        elif start is not None and line.strip() == fence:
            yield start, language, lines[start + 1 : i]
            start = None


def read_blocks(lines):
    """Marked blocks; a text block with nothing but empty lines between belongs to the commands before it."""
    blocks, last, last_end = [], None, -1
    for start, language, text in fences(lines):
        mark = MARK.match(lines[start - 1]) if start > 0 else None
        if mark:
            if mark[1] == "test" and language not in ("sh", "bash"):
                raise DocsError(f"line {start + 1}: a tested block is sh, not '{language}'")
            last = Block(start + 1, mark[1], mark[2] or "", text)
            blocks.append(last)
        elif language == "text" and last and last.kind == "test" and not "".join(lines[last_end:start]).strip():
            last.expected, last.expected_line = text, start + 2
            last = None
        else:
            last = None
        last_end = start + len(text) + 2
    return blocks


def shape(line):
    """The line with what may vary replaced: numbers, paths, rules and runs of white space."""
    line = re.sub(r"-{3,}", "--", line)
    line = NUMBER.sub("#", line)
    line = re.sub(r"(?<![\w.#}*])/(?:[\w.+#~-]+/?)+", "PATH", line)
    return re.sub(r"\s+", " ", line).strip()


def expected_pattern(line):
    """A regular expression for the shape of one expected line."""
    return ".*".join(re.escape(shape(part)) if part.strip() else "" for part in line.split("…")).replace(".*", "\\s*.*\\s*")


def align(expected, actual):
    """(index of an expected line, index of the actual line of its shape)… where the shapes agree, else None and the index of the
    first expected line that nothing matches."""
    actual = [(i, shape(line)) for i, line in enumerate(actual) if line.strip()]
    expected = [(i, line) for i, line in enumerate(expected) if line.strip()]
    reachable, furthest, steps = {0: 0}, expected[0][0] if expected else 0, []  # actual lines used: those used a line before
    for i, line in expected:
        if line.strip() == "…":
            first = min(reachable)
            reachable = {at: max(before for before in reachable if before <= at) for at in range(first, len(actual) + 1)}
        else:
            pattern = re.compile(expected_pattern(line))
            reachable = {at + 1: at for at in reachable if at < len(actual) and pattern.fullmatch(actual[at][1])}
            if not reachable:
                return None, i
            furthest = i
        steps.append((i, line.strip() != "…", reachable))
    if len(actual) not in reachable:
        return None, furthest
    pairs, at = [], len(actual)
    for i, is_line, before in reversed(steps):
        if is_line:
            pairs.append((i, actual[at - 1][0]))
        at = before[at]
    return pairs[::-1], None


def same_text(expected, actual):
    """Whether a line agrees but for white space and what its `…` stand for."""
    parts = [re.escape(re.sub(r"\s+", " ", part).strip()) for part in expected.split("…")]
    return re.fullmatch(r"\s*.*\s*".join(parts), re.sub(r"\s+", " ", actual).strip()) is not None


def run_block(block, folder, environment):
    """Runs a block's commands and returns what they print."""
    match = re.fullmatch(r"(?:exit (\d+))?(?:(?:^|, )exact)?", block.argument)
    if not match:
        raise DocsError(f"line {block.line}: unknown mark '{block.argument}': expected 'test', 'test: exit N', 'test: exact' or 'test: exit N, exact'")
    try:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(block.text)], cwd=folder, env=environment, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS_A_BLOCK)
    except subprocess.TimeoutExpired as error:
        raise DocsError(f"line {block.line}: still runs after {SECONDS_A_BLOCK} s") from error
    if done.returncode != int(match[1] or 0):
        raise DocsError(f"line {block.line}: exit code {done.returncode}, expected {match[1] or 0}\n{done.stdout}")
    return done.stdout


def check_output(block, output):
    """Throws where the output is not the page's: of its shape, and, if the block says so, with its numbers."""
    if block.expected is None:
        return
    printed = output.splitlines()
    pairs, wrong = align(block.expected, printed)
    if pairs is not None and block.exact:
        wrong = next((i for i, at in pairs if not same_text(block.expected[i], printed[at])), None)
    if wrong is not None:
        hint = "\n  (check_docs.py update writes numbers anew)" if pairs is not None else ""
        raise DocsError(f"line {block.expected_line + wrong}: the output is not (any more)\n    {block.expected[wrong]}\n"
                        f"  what the commands print now:\n{output}{hint}")


def updated(lines, block, output):
    """Puts an exact block's lines of today in place of the page's; those with `…` or another shape stay."""
    printed = output.splitlines()
    pairs, wrong = align(block.expected, printed)
    if pairs is None:
        raise DocsError(f"line {block.expected_line + wrong}: the output has another shape: change it by hand\n{output}")
    for i, at in pairs:
        if not same_text(block.expected[i], printed[at]):
            if "…" in block.expected[i]:
                raise DocsError(f"line {block.expected_line + i}: has `…`: change it by hand\n{printed[at]}")
            lines[block.expected_line + i - 1] = printed[at].rstrip()


def prepare_folder(folder, source, program, examples):
    """What a reader has after `make build`, as far as commands need it."""
    shutil.copytree(source / "configs", folder / "configs")
    if (source / "benchmarks").is_dir():  # the self-test has none
        shutil.copytree(source / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("peers"))
    (folder / "build").mkdir()
    (folder / "build" / "bantam").symlink_to(program.resolve())
    (folder / "build" / "examples").symlink_to((examples or program.parent / "examples").resolve())
    (folder / "examples").symlink_to((source / "examples").resolve())


def run_page(page, source, program, command="run", examples=None):
    """Runs a page's blocks in order; returns how many commands blocks there were."""
    lines = page.read_text(encoding="utf-8").splitlines()
    blocks = read_blocks(lines)
    tests = [block for block in blocks if block.kind == "test"]
    with tempfile.TemporaryDirectory(prefix="bantam-docs-") as name:
        folder = Path(name)
        prepare_folder(folder, source, program, examples)
        environment = {**os.environ, "HOME": name, "TMPDIR": name, "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C.UTF-8"}
        for block in blocks:
            if block.kind == "file":
                (folder / block.argument).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.argument).write_text("\n".join(block.text) + "\n", encoding="utf-8")
                continue
            output = run_block(block, folder, environment)
            if command == "show":
                print("\n".join(["$ " + line for line in block.text]) + "\n" + output, flush=True)
            elif command == "run":
                check_output(block, output)
            elif block.exact and block.expected is not None:
                updated(lines, block, output)
    if command == "update":
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(tests)


def run_pages(arguments):
    """The commands `run`, `show` and `update`."""
    failures = 0
    for name in arguments.pages:
        try:
            count = run_page(arguments.source / name, arguments.source, arguments.program, arguments.command, arguments.examples)
            if count == 0:
                raise DocsError("no block is marked as tested")
            print(f"{name}: {count} blocks " + ("brought up to date" if arguments.command == "update" else "ran as the page says"))
        except DocsError as error:
            failures += 1
            print(f"{name}: {error}")
    return 1 if failures else 0


def heading_anchor(text):
    """GitHub's anchor of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def read_page(path):
    """Links, anchors and names of files (`folder/file.h`) of a page, outside fenced blocks."""
    page, lines = Page(), path.read_text(encoding="utf-8").splitlines()
    fenced = {i for start, _, text in fences(lines) for i in range(start, start + len(text) + 2)}
    seen = {}
    for i, line in enumerate(lines):
        if i in fenced:
            continue
        if heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            anchor = heading_anchor(heading[1])
            count = seen[anchor] = seen.get(anchor, -1) + 1
            page.anchors.add(f"{anchor}-{count}" if count else anchor)
        page.anchors.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
        page.files += [(i + 1, name) for name in FILE_NAME.findall(line) if not PLACEHOLDER.search(name)]
        page.new_files.update(NEW_FILE.findall(line))
        plain = re.sub(r"`[^`]*`", lambda code: "`" * len(code[0]), line)
        page.links += [(i + 1, target) for target in re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", plain)]
    return page


def broken_links(source, pages):
    """'page:line: what is wrong' of each relative link, and of each file named below a folder of the tree, that is not there."""
    read, wrong = {}, []
    for path in pages:
        page = read.setdefault(path.resolve(), None) or read_page(path)
        read[path.resolve()] = page
        for line, link in page.links:
            if re.match(r"[a-z][a-z0-9+.-]*:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path.resolve()
            where = f"{path.relative_to(source)}:{line}: {link}"
            if not target.exists():
                wrong.append(f"{where}: no such file")
            elif anchor and target.suffix == ".md":
                read[target] = read.get(target) or read_page(target)
                if anchor not in read[target].anchors:
                    wrong.append(f"{where}: no such heading")
        for line, name in page.files:
            if name not in page.new_files and (source / name.split("/")[0]).is_dir() and not (source / name).exists():
                wrong.append(f"{path.relative_to(source)}:{line}: `{name}`: no such file")
    return wrong


def check_links(arguments):
    """The command `links`."""
    source = arguments.source.resolve()
    pages = [source / "README.md", *sorted((source / "docs").rglob("*.md"))]
    wrong = broken_links(source, pages)
    print("\n".join(wrong) or f"{len(pages)} pages: every relative link resolves")
    return 1 if wrong else 0


def expect(condition, what):
    """One assertion of the self-test."""
    if not condition:
        raise DocsError(f"self-test: {what}")


SAMPLE_PAGE = """# A page
<!-- file: in.txt -->
```yaml
peak: 12
```
<!-- test -->
```sh
cat in.txt; echo "tiny on cpu, /tmp/x/y"; echo 'model  peak  3.2 MiB, 40 ms'; echo note; echo end
```

```text
peak: 3,000
tiny on cpu, /elsewhere
model peak 17.0 GiB, 1.5s
…
end
```
<!-- test: exit 4 -->
```sh
exit 4
```
<!-- test: exact -->
```sh
echo "12  layers"; echo "1.5 s, 3 MiB"
```
```text
12 layers
… 3 MiB
```
"""


def check_sample(folder, text):
    """Whether a page with this text passes."""
    (folder / "page.md").write_text(text, encoding="utf-8")
    try:
        return run_page(folder / "page.md", folder, folder / "program") == 3
    except DocsError:
        return False


def self_test_pages(folder):
    """A page passes as it is, and fails with any line of it changed."""
    (folder / "configs").mkdir()
    (folder / "program").touch()
    expect(check_sample(folder, SAMPLE_PAGE), "the sample page passes")
    for old, new in [("peak: 3,000", "peek: 3,000"), ("tiny on cpu, /else", "tiny on gpu, /else"), ("GiB, 1.5s", "GiB held, 1.5s"), ("…\nend", "…\nEnd"),
                     ("…\nend", "end"), ("…\nend", "…\nend\nmore"), ("test: exit 4", "test"), ("exit 4\n```", "exit 5\n```"),
                     ("<!-- test -->", "<!-- test: often -->"), ("\n12 layers", "\n13 layers"), ("… 3 MiB", "… 4 MiB"), ("echo end", "echo end; false")]:
        expect(old in SAMPLE_PAGE, f"the sample page has '{old}'")
        expect(not check_sample(folder, SAMPLE_PAGE.replace(old, new, 1)), f"'{old}' changed to '{new}' is noticed")


def self_test_update(folder):
    """Numbers of an exact block are written anew, and nothing else."""
    stale = SAMPLE_PAGE.replace("\n12 layers", "\n11 layers")
    (folder / "page.md").write_text(stale, encoding="utf-8")
    run_page(folder / "page.md", folder, folder / "program", "update")
    text = (folder / "page.md").read_text(encoding="utf-8")
    expect(text == SAMPLE_PAGE.replace("\n12 layers", "\n12  layers"), "an update writes the exact block's number, and nothing else")


def self_test_shapes():
    """What varies has one shape; names with digits in them have their own."""
    for a, b in [("3.8s", "41 ms".replace(" ", "")), ("866K", "1.2M"), ("runs/q-20261121-203033", "runs/q-20250101-000000"), ("-----  --", "---  --"),
                 ("+13.3 % time", "7 % time"), ("1012 KiB", "1.36 MiB")]:
        expect(shape(a) == shape(b), f"'{a}' has the shape of '{b}'")
    for a, b in [("float32", "float16"), ("conv2d_1", "conv2d_2"), ("parameters/master", "parameters/gradient"), ("yes", "no"), ("none", "-")]:
        expect(shape(a) != shape(b), f"'{a}' has not the shape of '{b}'")


def self_test_links(folder):
    """A link to a missing file or heading is found, in a fenced block it is none."""
    page = folder / "links.md"
    for link, good in [("links.md", True), ("links.md#two-words-here", True), ("#two-words-here", True), ("#three", False), ("none.md", False),
                       ("https://example.org/none", True), ("configs", True)]:
        page.write_text(f"## Two `words`, here\n[a]({link})\n```\n[b](nowhere.md)\n```\n", encoding="utf-8")
        expect((broken_links(folder, [page]) == []) == good, f"link {link}")
    for name, good in [("configs/none.yaml", False), ("configs/NAME.yaml", True), ("nowhere/none.yaml", True), ("configs/LIST.md", False),
                       ("configs/new.yaml", True)]:
        page.write_text(f"See `{name}`.\n<!-- new file: configs/new.yaml -->\n", encoding="utf-8")
        expect((broken_links(folder, [page]) == []) == good, f"file {name}")


def self_test(_):
    """The command `self-test`."""
    with tempfile.TemporaryDirectory(prefix="bantam-docs-") as name:
        folder = Path(name).resolve()
        self_test_shapes()
        self_test_pages(folder)
        self_test_update(folder)
        self_test_links(folder)
    print("self-test: changed pages and broken links are noticed")
    return 0


def main():
    parser = argparse.ArgumentParser(description="Documentation checks.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "show", "update"):
        command = commands.add_parser(name)
        command.add_argument("--program", type=Path, required=True)
        command.add_argument("--examples", type=Path)
        command.add_argument("pages", nargs="+")
        command.set_defaults(function=run_pages)
    commands.add_parser("links").set_defaults(function=check_links)
    commands.add_parser("self-test").set_defaults(function=self_test)
    for name in ("run", "show", "update", "links"):
        commands.choices[name].add_argument("--source", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        return arguments.function(arguments)
    except DocsError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
