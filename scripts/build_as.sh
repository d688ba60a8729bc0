#!/usr/bin/env bash
# Builds everything as for an older GPU, to run on this machine's: device code made for its architecture, translated for the
# GPU that is here, and no more shared memory for a thread block than it would give. What then runs are the paths that the
# older GPU takes (not its instructions, nor its speed).
#
#   scripts/build_as.sh 75 build-75 [90]   # 75, 80, 86, 87 or 89; the GPU here: 9.0
#   ctest --test-dir build-75 -L gpu
set -euo pipefail
older=$1 build=$2 here=${3:-90}
case $older in
  75) kib=64 ;;
  80 | 87) kib=163 ;;
  86 | 89) kib=99 ;;
  *) echo "build_as: $older: 75, 80, 86, 87 or 89" >&2; exit 2 ;;
esac
cmake -S "$(dirname "$0")/.." -B "$build" -G Ninja -DBANTAM_TESTS=ON -DBANTAM_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=OFF \
  "-DCMAKE_CUDA_FLAGS=-gencode=arch=compute_$older,code=sm_$here" "-DBANTAM_BLOCK_SHARED_KIB=$kib"
cmake --build "$build"
