#!/usr/bin/env bash
# Compiles all device code for another GPU architecture, to see that it can be (shared memory, blocks a multiprocessor and
# instructions differ); the results are thrown away. Minutes on two cores.
#
#   scripts/compile_for.sh build 75        # build: a configured CUDA build (Ninja), made for one architecture
set -euo pipefail
build=$1 architecture=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$build"
export architecture work

compile() {
  local object=$1 log=$work/${1//\//_}.log command
  command=$(ninja -t commands "$object" | tail -1 |
    sed -E "s#^.*ccache ##; s#\"?--generate-code=arch=[^ ]*,code=\[[^]]*\]\"?#-gencode=arch=compute_$architecture,code=sm_$architecture#g; s# -MD.*-MF [^ ]*##; s#-o [^ ]*\.o#-o $log.o#")
  if eval "$command" > "$log" 2>&1; then echo "ok   $object"; else echo "FAIL $object"; tail -5 "$log"; return 1; fi
}
export -f compile
ninja -t targets all | sed -n 's#^\([^ ]*\.cu\.o\):.*#\1#p' | sort | xargs -P "$(nproc)" -I{} bash -c 'compile {}'
