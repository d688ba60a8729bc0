#!/usr/bin/env bash
# dist.sh FOLDER JOBS [cmake options…]: builds a program that needs libc alone and packs it, stripped, with configurations, shell
# completion, pages and the licences of what is linked into it: FOLDER/bantam-VERSION-linux-x86_64.tar.xz (with CUDA: …-cuda13.tar.xz).
#
#   scripts/dist.sh build-dist 4                                   # CPU and, where a CUDA toolkit is found, GPU
#   scripts/dist.sh build-dist-cpu 4 -DBANTAM_CUDA=OFF
#   scripts/dist.sh build-release-all-gpus 4 --preset release-all-gpus
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1 jobs=$2
shift 2

# Archives of what is linked; the compiler's own come with it. Header-only libraries have no archive in the link's map.
archive_packages=(libyaml-cpp-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libgif-dev libarchive-dev liblzma-dev libzstd-dev libbz2-dev)
header_packages=(libfmt-dev nlohmann-json3-dev libcli11-dev)
newest_glibc=2.36

die() {
  echo "dist: error: $*" >&2
  exit 1
}

# The program's shared libraries are those of libc's own package, and no symbol is newer than the oldest supported system's.
check_needs_libc_alone() {
  local library version
  for library in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $library in
      libc.so.6 | libm.so.6 | ld-linux-x86-64.so.2) ;;
      *) die "$1 needs $library; expected libc, libm and the loader alone" ;;
    esac
  done
  readelf -d "$1" | grep -E '\((RPATH|RUNPATH)\)' && die "$1 has a path to libraries of this machine"
  version=$(objdump -T "$1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -1)
  [[ $(printf '%s\n' "$version" $newest_glibc | sort -V | tail -1) == "$newest_glibc" ]] ||
    die "$1 needs glibc $version; expected $newest_glibc or older: build on Debian 12"
}

# copy_licences MAP INTO: one file for each package whose archive or headers are in the program.
copy_licences() {
  local map=$1 into=$2 archive package packages=("${header_packages[@]}")
  mkdir -p "$into"
  while read -r archive; do
    if [[ $archive == */libcudart_static.a ]]; then
      copy_cuda_licence "$archive" "$into"
      continue
    fi
    package=$(dpkg-query -S "$archive" 2>/dev/null | head -1 | cut -d: -f1) ||
      die "$archive is linked, and no Debian package says what its licence is"
    packages+=("$package")
  done < <(sed -n 's#^\(/[^ ]*\.a\)(.*#\1#p' "$map" | xargs -r realpath | sort -u)
  for package in $(printf '%s\n' "${packages[@]}" | sort -u); do
    [[ -f /usr/share/doc/$package/copyright ]] || die "/usr/share/doc/$package/copyright: no such file (is a minimal system installed?)"
    cp -L "/usr/share/doc/$package/copyright" "$into/$package"
  done
}

# CUDA's runtime may be distributed within programs, by the licence of the toolkit, whose file lies in the toolkit or its package.
copy_cuda_licence() {
  local root file
  root=$(dirname "$(dirname "$(dirname "$(dirname "$1")")")")
  for file in "$root"/EULA.txt "$root"/LICENSE "$root"/doc/EULA.txt /usr/share/doc/cuda-cudart-dev-*/copyright; do
    [[ -f $file ]] && cp -L "$file" "$2/cuda-runtime" && return
  done
  printf '%s\n' "NVIDIA CUDA Runtime (libcudart_static.a of the CUDA toolkit), distributed within this program as Attachment A" \
    "of the CUDA Toolkit End User License Agreement allows." >"$2/cuda-runtime"
}

missing=()
for package in "${archive_packages[@]}"; do
  [[ -f /usr/share/doc/$package/copyright ]] || missing+=("$package")
done
((${#missing[@]} == 0)) || scripts/install_deps.sh "${missing[@]}"
scripts/build.sh "$folder" "$jobs" bantam -DCMAKE_BUILD_TYPE=Release -DBANTAM_STATIC_DEPENDENCIES=ON -DBANTAM_ONEDNN=OFF \
  -DBANTAM_WEBP=ON -DBANTAM_GIF=ON -DBANTAM_TIFF=OFF \
  -DBANTAM_TESTS=OFF -DBANTAM_EXAMPLES=OFF "$@"

cached() { sed -n "s/^$1:[A-Z]*=//p" "$folder/CMakeCache.txt"; }
name=bantam-$(cached CMAKE_PROJECT_VERSION)-linux-$(uname -m)
cuda=$(sed -n 's/.*set(CMAKE_CUDA_COMPILER_VERSION "\([0-9]*\)\..*/\1/p' "$folder"/CMakeFiles/*/CMakeCUDACompiler.cmake 2>/dev/null || true)
[[ -z $cuda ]] || name+=-cuda$cuda
stage=$folder/$name
rm -rf "$stage"
mkdir -p "$stage"/{bin,share/completion}
strip -o "$stage/bin/bantam" "$folder/bantam"
check_needs_libc_alone "$stage/bin/bantam"
for shell in bash zsh fish; do "$stage/bin/bantam" completion $shell >"$stage/share/completion/bantam.$shell"; done
copy_licences "$folder/bantam.map" "$stage/licences"
cp LICENSE README.md CHANGELOG.md "$stage"
cp -r configs examples "$stage"
mkdir "$stage/docs" && cp docs/*.md "$stage/docs" && cp -r docs/tasks "$stage/docs/tasks"
find "$stage" -type d -exec chmod 755 {} + -o -type f -exec chmod go=rX {} +
# The same sources make the same archive: names in order, nobody's ids, the time of the last commit.
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -cf - "$name" | xz -9e -T1 >"$stage.tar.xz"
echo "dist: $stage.tar.xz: $(stat -c %s "$stage.tar.xz") bytes; the program $(stat -c %s "$stage/bin/bantam") bytes, needs glibc $newest_glibc or later"
sha256sum "$stage.tar.xz"
