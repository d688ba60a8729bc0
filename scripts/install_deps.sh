#!/usr/bin/env bash
# Installs the Debian packages the build needs, and only those that are missing. Silent and offline when all are there.
# More packages can be named: scripts/install_deps.sh libbenchmark-dev (for the micro benchmarks).
set -euo pipefail

packages=(cmake g++ ninja-build ccache libdnnl-dev libyaml-cpp-dev libcli11-dev libfmt-dev
          nlohmann-json3-dev libeigen3-dev zlib1g-dev libarchive-dev libjpeg-dev libpng-dev libwebp-dev libgif-dev libtiff-dev libgtest-dev
          pkgconf "$@")

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: this is no Debian system; make sure these (or their like) are installed: ${packages[*]}" >&2
  exit 0
fi

# dpkg-query prints a package's name only if it is installed whole; names it never heard of go to stderr.
installed=" $(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
              sed -n 's/^installed //p' | tr '\n' ' ' || true)"
missing=()
for package in "${packages[@]}"; do
  [[ $installed == *" $package "* ]] || missing+=("$package")
done
((${#missing[@]} == 0)) && exit 0

if ((EUID == 0)); then
  root=(env)
elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
  root=(sudo env)
else
  echo "install_deps: missing packages, and neither root nor sudo to install them. Please run:" >&2
  echo "  apt-get install ${missing[*]}" >&2
  exit 1
fi

echo "install_deps: installing ${missing[*]}" >&2
apt=("${root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
# The package lists may be there already; they are fetched only when the first attempt finds them missing or stale.
if ! "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
  "${apt[@]}" update
  "${apt[@]}" install --no-install-recommends "${missing[@]}"
fi
