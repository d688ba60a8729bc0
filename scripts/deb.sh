#!/usr/bin/env bash
# deb.sh FOLDER JOBS [cmake options…]: builds the shared library and the program for /usr, and packs them by CPack:
# FOLDER/debs/libbantam0_…, libbantam-dev_… and bantam_VERSION-1_amd64.deb. The program has the engine linked in: it needs no libbantam0.
# Third-party libraries are the distribution's shared ones, named in the packages' dependencies.
#
#   scripts/deb.sh build-deb 4 -DBANTAM_CUDA=OFF
#   apt-get install ./build-deb/debs/bantam_*.deb
#
# BANTAM_MAINTAINER ("Name <address>") says who answers for the packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1 jobs=$2
shift 2
maintainer=${BANTAM_MAINTAINER:-Bantam maintainers <maintainers@users.noreply.bantam.example>}

die() {
  echo "deb: error: $*" >&2
  exit 1
}
for tool in dpkg-shlibdeps dpkg-deb cpack file; do
  command -v $tool >/dev/null || die "needs $tool (Debian: dpkg-dev, cmake and file)"
done

# docs_of PACKAGE STAGE: what Debian's policy wants of every package: copyright and changelogs.
docs_of() {
  local docs=$2/share/doc/$1
  mkdir -p "$docs"
  cat >"$docs/copyright" <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: bantam

Files: *
Copyright: 2026 The authors of Bantam
License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
TEXT
  gzip -9n <CHANGELOG.md >"$docs/changelog.gz"
  gzip -9n >"$docs/changelog.Debian.gz" <<TEXT
bantam ($version-1) unstable; urgency=medium

  * Version $version, as built by scripts/deb.sh; CHANGELOG.md names the changes.

 -- $maintainer  $(date -R -u -d "@$time")
TEXT
}

# libraries_of STAGE: the packages of the shared libraries that its files need. (CPack's own way to ask comes with scripts that run
# ldconfig, where Debian has a trigger for it.)
libraries_of() {
  local work=$folder/stage/shlibdeps files
  mapfile -t files < <(find "$1" -type f \( -path '*/bin/*' -o -name '*.so.*' \))
  ((${#files[@]})) || return 0
  mkdir -p "$work/debian"
  touch "$work/debian/control"
  (cd "$work" && dpkg-shlibdeps -O "${files[@]}") | sed -n 's/^shlibs:Depends=//p'
}

# pack PACKAGE: all that its staged folder has.
pack() {
  local stage=$PWD/$folder/stage/$1
  docs_of "$1" "$stage"
  find "$stage" -type d -exec chmod 755 {} + -o -path '*/bin/*' -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
  printf 'set(BANTAM_%s "%s")\n' PACKAGE "$1" VERSION "$version" STAGE "$stage" MAINTAINER "$maintainer" \
    LIBRARIES "$(libraries_of "$stage")" >"$folder/debs/cpack.cmake"
  echo "include($source/cmake/DebianPackages.cmake)" >>"$folder/debs/cpack.cmake"
  (cd "$folder/debs" && SOURCE_DATE_EPOCH=$time cpack --config cpack.cmake >cpack.log 2>&1) ||
    { cat "$folder/debs/cpack.log" >&2; die "cpack could not pack $1"; }
}

source=$PWD
scripts/build.sh "$folder" "$jobs" all -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DBANTAM_SHARED=ON -DBANTAM_TESTS=OFF \
  -DBANTAM_EXAMPLES=OFF "$@"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' "$folder/CMakeCache.txt")
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
rm -rf "$folder"/{stage,debs}
mkdir -p "$folder"/{stage,debs}
for part in library:libbantam0 development:libbantam-dev program:bantam; do
  DESTDIR=$PWD/$folder/stage/${part%:*} cmake --install "$folder" --strip --component "${part%:*}" >>"$folder/stage/install.log"
  [[ -d $folder/stage/${part%:*}/usr ]] || die "the build installs nothing of the component ${part%:*} (docs/INSTALL.md)"
  mv "$folder/stage/${part%:*}/usr" "$folder/stage/${part#*:}"
done
mkdir -p "$folder/stage/bantam/share/"{man/man1,doc/bantam}
gzip -9n <docs/bantam.1 >"$folder/stage/bantam/share/man/man1/bantam.1.gz"
cp -r configs "$folder/stage/bantam/share/doc/bantam/examples"
echo "activate-noawait ldconfig" >"$folder/stage/triggers"
printf '%s 0 libbantam0 (>= %s)\n' libbantam "$version" libbantam_pool "$version" >"$folder/stage/shlibs"  # library, SONAME's number, package
for package in libbantam0 libbantam-dev bantam; do pack $package; done
rm -rf "$folder"/debs/{_CPack_Packages,cpack.*}
for file in "$folder"/debs/*.deb; do echo "deb: $file: $(stat -c %s "$file") bytes"; done
