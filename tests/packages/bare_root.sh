#!/usr/bin/env bash
# bare_root.sh FOLDER: what `make deb` packed (FOLDER/*.deb) in a bare Debian 12, without compilers, CUDA or a GPU: lintian finds no error;
# apt installs the program, which trains; apt installs the library and its development files; both are removed and leave nothing.
# BANTAM_BARE_ROOT: a folder that debootstrap made before (left as it was), else one is made here, by network.
set -euo pipefail
debs=$(realpath "$1")
if ((EUID != 0)) || ! command -v debootstrap lintian >/dev/null; then
  echo "no root, debootstrap or lintian: skipped"
  exit 0
fi
lintian --fail-on error "$debs"/*.deb 2>&1 | grep -v "root privileges" || [[ ${PIPESTATUS[0]} == 0 ]]

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
if [[ -n ${BANTAM_BARE_ROOT:-} ]]; then
  cp -a "$BANTAM_BARE_ROOT/." "$root"
else
  debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 || { cat "$root.log"; echo "no Debian to install: skipped"; exit 0; }
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
mkdir "$root/debs"
for package in bantam libbantam0 libbantam-dev; do cp "$debs/${package}"_*.deb "$root/debs/$package.deb"; done

# inside COMMAND…: in that root, with /proc of its own processes.
inside() { unshare --mount --pid --fork chroot "$root" sh -c 'mount -t proc proc /proc && exec "$@"' sh "$@"; }
apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >"$root/apt.log" 2>&1 || { cat "$root/apt.log"; exit 1; }; }
files() { (cd "$root" && find . -xdev \( -path ./var -o -path ./tmp -o -path ./proc -o -path ./debs -o -path ./run -o -name ld.so.cache -o -name apt.log \) -prune -o -print | sort); }

for tool in gcc nvcc nvidia-smi cmake; do
  [[ -z $(find "$root"/{usr/bin,usr/local/bin} -name $tool) ]] || { echo "FAILED: that root has $tool"; exit 1; }
done
apt update
files >"$root.before"
apt install --no-install-recommends /debs/bantam.deb
inside bantam --version
inside bantam devices
inside bantam train /usr/share/doc/bantam/examples/quickstart.yaml --device cpu --run-dir /tmp/first --progress none \
  --epochs 1 data.train_samples=2000 data.test_samples=300
inside bantam evaluate /tmp/first | head -3
apt install --no-install-recommends /debs/libbantam0.deb /debs/libbantam-dev.deb
[[ -e $root/usr/include/bantam/bantam.h ]] || { echo "FAILED: no header"; exit 1; }
inside sh -c 'ldconfig -p | grep libbantam.so.0 && ldconfig -p | grep libbantam_pool.so.0'
apt purge --auto-remove bantam libbantam0 libbantam-dev
files | diff "$root.before" - || { echo "FAILED: files were left"; exit 1; }
echo "all hold"
rm -f "$root.before" "$root.log"
