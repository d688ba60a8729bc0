#!/usr/bin/env bash
# check.sh FOLDER: what `make check` checks besides building: format, clang-tidy on what changed, the tests labelled `rules` and
# `docs` (rules of includes, generated pages), words. All of them run; a tool that is not there is skipped, and says so.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
failures=()

# check NAME COMMAND…: runs it, prints whether it holds and how long that took.
check() {
  local name=$1 start=$SECONDS verdict=ok
  shift
  "$@" || { verdict=FAILED; failures+=("$name"); }
  echo "check: $name $verdict ($((SECONDS - start)) s)"
}

# Other versions lay out some lines otherwise: the tree is in the format of this one.
format() {
  local tool
  git rev-parse --verify --quiet HEAD >/dev/null || { echo "format: SKIPPED: no git checkout"; return 0; }
  for tool in clang-format-14 clang-format; do
    if [[ $("$tool" --version 2>/dev/null) == *" version 14."* ]]; then
      git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 "$tool" --dry-run --Werror
      return
    fi
  done
  echo "format: SKIPPED: no clang-format 14 here"
}

check format format
check tidy scripts/check_tidy.py "$folder"
check tests ctest --test-dir "$folder" -L 'docs|rules' --output-on-failure --no-tests=error
check words scripts/check_words.py --limit "${WORDS_LIMIT:-20}"
if ((${#failures[@]})); then
  echo "check: FAILED: ${failures[*]}"
  exit 1
fi
echo "check: all hold"
