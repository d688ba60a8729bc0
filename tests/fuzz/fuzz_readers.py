#!/usr/bin/env python3
"""Fuzzes the readers with libFuzzer under AddressSanitizer and UndefinedBehaviorSanitizer, and prints how often each ran.

fuzz_readers.py BUILD [--seconds 30] [--only csv,png] [--keep]. BUILD is a folder that was built with Ninja. The readers' own sources are
compiled once more, by clang with sanitizers, to BUILD/fuzz; all else is linked from BUILD's libraries. Files that end a reader lie in
BUILD/fuzz/found/READER afterwards, and the exit code is 1. A reader may take 10 s, and 512 MiB in one piece or 2 GiB in all.
Exit code 77: there is no clang with libFuzzer, or BUILD is not Ninja's.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = "tests_fuzz"
# The sources that are compiled with sanitizers, and those that share a file of several sources with them.
READERS = re.compile(r"^(base|data/files|data/formats|data/images|models/onnx|run/config)/|"
                     r"^engine/comm/(handshake|frame_stream)|^engine/train/safetensors|^memory/device/device_profile|"
                     r"^run/train/(checkpoint_folder|metrics_history|run_record)|^run/weights/torch_|^cli/train/http_request|"
                     r"^tests/fuzz/readers")
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1"]
RULES = """rule compile
  command = $launcher $clang $flags -O1 {sanitizers} -fsanitize=fuzzer-no-link -MMD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = clang $in
rule link
  command = $clang {sanitizers} -fsanitize=fuzzer $in $libraries -o $out
  description = link $out
"""


def skip(why):
    print(f"fuzz_readers: skipped: {why}")
    sys.exit(77)


def find_clang(work):
    probe = work / "probe.cpp"
    probe.write_text('#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }\n')
    for name in ("clang++", "clang++-19", "clang++-16", "clang++-14"):
        if shutil.which(name) and subprocess.run([name, *SANITIZERS, "-fsanitize=fuzzer", str(probe), "-o", str(work / "probe")],
                                                 capture_output=True, check=False).returncode == 0:
            return name
    return skip("there is no clang++ with libFuzzer (Debian: clang and libclang-rt-dev)")


def compile_flags(command):
    """What says how a source is read: definitions, folders, language, processor."""
    words, kept = shlex.split(command), []
    for i, word in enumerate(words):
        if word.startswith(("-D", "-I", "-std", "-march", "-fvisibility")):
            kept.append(word)
        elif word == "-isystem":
            kept += [word, words[i + 1]]
    return kept


def link_libraries(build):
    lines = (build / "build.ninja").read_text().splitlines()
    for i, line in enumerate(lines):
        if re.match(rf"build \S*/{TARGET}: CXX_EXECUTABLE_LINKER", line):
            for inner in lines[i + 1:]:
                if not inner.startswith("  "):
                    break
                if inner.startswith("  LINK_LIBRARIES = "):
                    words = inner.split(" = ", 1)[1].split()
                    return [w for w in words if "gtest" not in w and "test_main" not in w]
    sys.exit(f"fuzz_readers: {build}/build.ninja does not link {TARGET}")


def name_of(path):
    """The path in the tree; of a generated file its last name."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def sources_of(path):
    """The sources of the tree that a compiled file has: itself, or those that it includes (cmake/BantamUnity.cmake)."""
    if path.parent.name != "unity":
        return [name_of(path)]
    return re.findall(r'#include "bantam/(\S+[.]cpp)"', path.read_text()) if path.exists() else []


def compiled_files(build):
    """By the object's name, the file and its flags: of libraries what CMake compiles, of the tests the readers alone."""
    files = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["directory"], entry["file"]).resolve()
        if path.suffix != ".cpp":
            continue
        names = sources_of(path)
        if not any(READERS.match(name) or name == "built_in_formats.cpp" for name in names):
            continue
        if names[0].startswith("tests/"):
            if "tests/fuzz/readers.cpp" in names:
                for name in ("tests/fuzz/readers.cpp", "tests/fuzz/libfuzzer.cpp"):
                    files[name] = (ROOT / name, compile_flags(entry["command"]))
        else:
            files.setdefault(name_of(path), (path, compile_flags(entry["command"])))
    if "tests/fuzz/readers.cpp" not in files:
        sys.exit(f"fuzz_readers: {build} does not compile tests/fuzz/readers.cpp")
    return files


def write_ninja(build, work, clang):
    launcher = "ccache" if shutil.which("ccache") else ""
    lines = [RULES.format(sanitizers=" ".join(SANITIZERS)), f"clang = {clang}\nlauncher = {launcher}\n"]
    objects = []
    for name, (path, flags) in sorted(compiled_files(build).items()):
        target = work / "objects" / (name.replace("/", "_") + ".o")
        objects.append(str(target))
        lines.append(f"build {target}: compile {path}\n  flags = {' '.join(map(shlex.quote, flags))}\n")
    libraries = [str(build / w) if not w.startswith(("-", "/")) else w for w in link_libraries(build)]
    archives = " ".join(w for w in libraries if w.endswith(".a") and w.startswith(str(build)))
    lines.append(f"build {work / 'fuzz'}: link {' '.join(objects)} | {archives}\n  libraries = {' '.join(libraries)}\n")
    (work / "build.ninja").write_text("\n".join(lines))


def fuzz(work, reader, seconds):
    """Runs one reader. Returns executions, and the files that ended it."""
    grown, found = work / "corpus" / reader, work / "found" / reader
    for folder in (grown, found):
        folder.mkdir(parents=True, exist_ok=True)
    command = [str(work / "fuzz"), f"-max_total_time={seconds}", "-rss_limit_mb=2048", "-malloc_limit_mb=512", "-timeout=10", "-max_len=16384",
               "-print_final_stats=1", f"-artifact_prefix={found}/", str(grown), str(ROOT / "tests/fuzz/corpus" / reader)]
    run = subprocess.run(command, capture_output=True, check=False, env=os.environ | {"BANTAM_FUZZ_READER": reader}, cwd=work)
    text = run.stderr.decode(errors="replace")
    (work / f"{reader}.log").write_text(text)
    ran = re.search(r"number_of_executed_units: (\d+)", text)
    return int(ran[1]) if ran else 0, run.returncode, sorted(found.iterdir())


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=Path)
    arguments.add_argument("--seconds", type=int, default=30)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--keep", action="store_true", help="add what reaches new code to tests/fuzz/corpus")
    options = arguments.parse_args()
    build = options.build.resolve()
    work = build / "fuzz"
    work.mkdir(exist_ok=True)
    if not (build / "build.ninja").exists() or not shutil.which("ninja"):
        skip(f"{build} was not built with Ninja")
    write_ninja(build, work, find_clang(work))
    subprocess.run(["ninja", "-C", str(work), "-j", str(options.jobs)], check=True, stdout=subprocess.DEVNULL)

    readers = sorted(folder.name for folder in (ROOT / "tests/fuzz/corpus").iterdir() if folder.is_dir())
    if options.only:
        readers = options.only.split(",")
    begun, failed, total = time.monotonic(), [], 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for reader, (ran, code, found) in zip(readers, pool.map(lambda r: fuzz(work, r, options.seconds), readers)):
            total += ran
            print(f"{reader:16} {ran:>12,} executions" + (f"  FAILED, exit code {code}: {', '.join(map(str, found)) or work / (reader + '.log')}" if code else ""),
                  flush=True)
            if code:
                failed.append(reader)
            if options.keep and not code:
                kept = ROOT / "tests/fuzz/corpus" / reader
                subprocess.run([str(work / "fuzz"), "-merge=1", str(kept), str(work / "corpus" / reader)], check=True, capture_output=True,
                               env=os.environ | {"BANTAM_FUZZ_READER": reader})
    print(f"{len(readers)} readers, {total:,} executions in {time.monotonic() - begun:.0f} s; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
