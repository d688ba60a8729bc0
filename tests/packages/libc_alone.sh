#!/usr/bin/env bash
# libc_alone.sh ARCHIVE: unpacks what `make dist` packed into a root that has libc, libm, the loader and nothing else (no shell, no GPU,
# no compiler, no /usr/lib), and uses the program there: version, plan, training, evaluation, prediction, completion.
set -euo pipefail
archive=$(realpath "$1")
bytes=$(tar -xOf "$archive" --wildcards '*/bin/bantam' | wc -c)
echo "the program: $bytes bytes"
if [[ $archive != *cuda* ]] && ((bytes > 10000000)); then
  echo "FAILED: expected 10,000,000 bytes at most"
  exit 1
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
if ! unshare --map-root-user true 2>/dev/null; then
  echo "no unprivileged namespaces: skipped"
  exit 0
fi
mkdir -p "$root"/{lib64,lib/x86_64-linux-gnu,tmp,proc,dev}
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64"
cp -L /lib/x86_64-linux-gnu/lib{c,m}.so.6 "$root/lib/x86_64-linux-gnu"
tar -C "$root" -xf "$archive"
folder=$(cd "$root" && echo bantam-*)

# inside ARGUMENT…: the program, where / is that root. Without /proc, as a bare chroot has it.
inside() { unshare --map-root-user chroot "$root" "/$folder/bin/bantam" "$@"; }
# says TEXT ARGUMENT…: what the program prints has TEXT.
says() {
  local text=$1 out
  shift
  out=$(inside "$@" 2>&1) || { echo "FAILED: bantam $*: $out"; exit 1; }
  [[ $out == *"$text"* ]] || { echo "FAILED: bantam $*: expected '$text', got: $out"; exit 1; }
  echo "ok: bantam $*"
}
version=${folder#bantam-}
says "bantam ${version%%-*}" --version
says "peak" plan "/$folder/configs/resnet50.yaml" --device t4 --batch-sizes 64,128
says "complete -" completion bash
says "validation" train "/$folder/configs/quickstart.yaml" --device cpu --run-dir /tmp/run --epochs 1 data.train_samples=2000 data.test_samples=300
says "accuracy" evaluate /tmp/run
says "this program was built without it" devices
# The same run again, on another number of threads: the same bits.
says "validation" train "/$folder/configs/quickstart.yaml" --device cpu --run-dir /tmp/again --threads 1 --epochs 1 data.train_samples=2000 data.test_samples=300
cmp "$root"/tmp/run/weights.safetensors "$root"/tmp/again/weights.safetensors
# Files of each kind whose library is linked in: zlib, libjpeg, libpng, libwebp and giflib; liblzma, libbz2, libzstd and libarchive.
python3 - "$root/tmp" <<'PYTHON'
import base64, bz2, lzma, pathlib, struct, sys, zlib

root = pathlib.Path(sys.argv[1])
jpeg = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1RV19iZ2hnPk1xeXBkeFxlZ2P/"
    "wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAf/EABYQAAMAAAAAAAAAAAAAAAAAAAAGQv/aAAgBAQAAPwBYaP/Z")
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) +
       chunk(b"IDAT", zlib.compress((b"\0" + bytes(range(8))) * 8)) + chunk(b"IEND", b""))
webp = base64.b64decode("UklGRiIAAABXRUJQVlA4TBYAAAAvB8ABAA8wUFf4H+T5Dy38/j+i/3EP")
gif = base64.b64decode("R0lGODdhCAAIAIEAAP8AAAlQyAAAAAAAACwAAAAACAAIAAAIEQADCBxIsKBBgwAOKlzIUGBAADs=")
for name, data, suffix in (("jpegs", jpeg, "jpg"), ("pngs", png, "png"), ("webps", webp, "webp"), ("gifs", gif, "gif")):
    (root / "photos" / name).mkdir(parents=True)
    for i in range(20):
        (root / "photos" / name / f"{i}.{suffix}").write_bytes(data)

def npy(kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data

images, labels = npy("|u1", "(40, 8, 8, 1)", bytes(i * 6 for i in range(40) for _ in range(64))), npy("|u1", "(40,)", bytes(i % 2 for i in range(40)))
(root / "images.npy.xz").write_bytes(lzma.compress(images))
(root / "labels.npy.bz2").write_bytes(bz2.compress(labels))
# A Zstandard frame of one raw block, up to 64 KiB.
frame = lambda data: (b"\x28\xb5\x2f\xfd\x60" + struct.pack("<H", len(data) - 256) + struct.pack("<I", len(data) << 3 | 1)[:3] + data)
(root / "images.npy.zst").write_bytes(frame(images))
for name, file in (("arrays", "images.npy.xz"), ("zstandard", "images.npy.zst")):
    (root / f"{name}.yaml").write_text("""
data:
  format: npy
  images: /tmp/FILE
  labels: /tmp/labels.npy.bz2
  pipeline: [{batch: {size: 4}}]
model:
  input: [8, 8, 1]
  layers: [flatten, {dense: {units: 2}}]
train:
  epochs: 1
  optimizer: {sgd: {learning_rate: 1.0e-3}}
""".replace("FILE", file))
PYTHON
says "wrote" init --data /tmp/photos --out /tmp/photos.yaml
says "jpegs" data /tmp/photos.yaml --check
says "validation" train /tmp/arrays.yaml --device cpu --run-dir /tmp/arrays
says "validation" train /tmp/zstandard.yaml --device cpu --run-dir /tmp/zstandard
for library in libjpeg62-turbo-dev libwebp-dev libgif-dev libstdc++ libyaml-cpp-dev libfmt-dev; do
  [[ -n $(find "$root/$folder/licences" -name "$library*") ]] || { echo "FAILED: no licence of $library"; exit 1; }
done
echo "all hold"
