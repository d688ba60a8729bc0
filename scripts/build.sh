#!/usr/bin/env bash
# build.sh FOLDER JOBS TARGET [cmake options…]: configures when that is needed, then builds. In release mode with tests and examples, so
# that every target is there, or as `--preset NAME` says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$1 jobs=$2 target=$3
shift 3
[[ " $* " == *" --preset "* ]] || set -- -DCMAKE_BUILD_TYPE=Release -DBANTAM_TESTS=ON -DBANTAM_EXAMPLES=ON "$@"
options=$*
mkdir -p "$folder"

# ccache fails where it cannot write its cache (no HOME, or one that is read-only): it then works in the build folder.
cache=${CCACHE_DIR:-${HOME:+$HOME/.cache/ccache}}
if [[ -z $cache ]] || ! mkdir -p "$cache" 2>/dev/null || [[ ! -w $cache ]]; then
  CCACHE_DIR=$(realpath "$folder")/ccache
  export CCACHE_DIR
fi
# Its scratch space is elsewhere by default (/run/user), which may be missing in containers.
export CCACHE_TEMPDIR=${CCACHE_TEMPDIR:-${CCACHE_DIR:-$cache}/tmp}
# What ccache asks for where headers are precompiled.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}

is_configured() {
  [[ -f $folder/build.ninja || -f $folder/Makefile ]] && [[ -f $folder/.configured_with ]] &&
    [[ $(<"$folder/.configured_with") == "$options" ]] && grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$folder/CMakeCache.txt"
}

if ! is_configured; then
  generator=()
  command -v ninja >/dev/null && generator=(-G Ninja)
  # --fresh: options that were dropped, or a folder that has moved, leave nothing behind.
  cmake --fresh -S . -B "$folder" "${generator[@]}" "$@"
  printf '%s\n' "$options" >"$folder/.configured_with"
fi
cmake --build "$folder" --parallel "$jobs" --target "$target"
