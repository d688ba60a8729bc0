#!/usr/bin/env python3
"""Packs the Python package into a wheel: make_wheel.py BUILD_FOLDER [INTO]. `make wheel` builds the library first.

The library is stripped. Shared libraries that it needs beside the system's go along in bantam/libs, where it looks for them.
"""

import base64
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Of every system; a C++ library of ours would take the place of the one that other packages need.
OF_SYSTEM = ("linux-vdso", "ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libstdc++.", "libgcc_s.")


def version():
    return re.search(r"project\(bantam VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def needed(library):
    """Paths of the shared libraries that it needs, those of the system left out."""
    paths = []
    for line in subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if words[0].startswith(OF_SYSTEM) or words[0].startswith("/"):
            continue
        if "not found" in line:
            sys.exit(f"make_wheel: error: {library} needs {words[0]}, which is not installed")
        paths.append((words[0], Path(words[2])))
    return paths


def stripped(library, folder):
    copy = Path(folder) / Path(library).name
    subprocess.run(["strip", "--strip-unneeded", "-o", copy, Path(library).resolve()], check=True)
    return copy.read_bytes()


def metadata():
    license_text = "Apache-2.0"
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: bantam\nVersion: {version()}\n"
                    "Summary: Trains convolutional networks within the memory that they are given\n"
                    f"License: {license_text}\nRequires-Python: >=3.9\nRequires-Dist: numpy\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n",
    }


def contents(library):
    """The files of the wheel by their names in it."""
    files = {f"bantam/{path.name}": path.read_bytes() for path in sorted((ROOT / "python/bantam").glob("*.py"))}
    info = f"bantam-{version()}.dist-info"
    with tempfile.TemporaryDirectory() as folder:
        files["bantam/_bantam.so"] = stripped(library, folder)
        for name, path in needed(library):
            files[f"bantam/libs/{name}"] = stripped(path, folder)
            notice = licence_of(path)
            files[f"{info}/licences/{notice.parent.name}"] = notice.read_bytes()
    files.update({f"{info}/{name}": text.encode() for name, text in metadata().items()})
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    return files, info


def licence_of(path):
    """What Debian's package of a library says of its licence."""
    for name in (path, path.resolve(), Path(str(path.resolve()).removeprefix("/usr"))):
        found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if found.returncode == 0:
            return Path("/usr/share/doc") / found.stdout.split(":")[0] / "copyright"
    sys.exit(f"make_wheel: error: no Debian package says what the licence of {path} is")


def record(files, info):
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    library = Path(sys.argv[1]) / "capi/_bantam.so"
    if not library.exists():
        sys.exit(f"make_wheel: error: {library}: no such file; build the target bantam_python first")
    into = Path(sys.argv[2] if len(sys.argv) == 3 else sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    files, info = contents(library)
    files[f"{info}/RECORD"] = record(files, info)
    wheel = into / f"bantam-{version()}-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes whenever it is made
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data)
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


main()
