#!/usr/bin/env bash
# Packs what a build needs to run on another machine that has a GPU but no compiler or packages: the program, the test programs
# and the distribution's shared libraries they use (not CUDA's: those come from that machine), stripped, in one archive.
#
#   scripts/pack_for_gpu.sh build-gpu pack.tar.xz
#   there: tar xf pack.tar.xz && cd pack && LD_LIBRARY_PATH=$PWD/lib:<folders of libcublasLt and libcudnn> ./run_gpu_tests.sh
set -euo pipefail
build=$1 archive=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/pack/bin" "$stage/pack/lib"
for program in "$build"/bantam "$build"/examples/embed/embed "$build"/tests/stress/limits_stress $(find "$build"/tests/{kernels,engine,data} "$build"/tests/memory/tests_memory_cuda "$build"/tests/cli/tests_cli -type f -perm -u+x -name 'tests_*'); do
  [ -f "$program" ] || continue
  strip -o "$stage/pack/bin/$(basename "$program")" "$program"
done
ldd "$stage"/pack/bin/* > "$stage/needed" 2>/dev/null || true
for library in libdnnl libgomp libyaml-cpp libfmt libgtest libOpenCL libz libjpeg libpng16 libwebp libwebpdemux libgif libtiff libdeflate libLerc libjbig liblzma libzstd; do
  path=$(awk -v l="$library.so" 'index($1, l) == 1 && !found { print $3; found = 1 }' "$stage/needed")
  [ -z "$path" ] || cp -L "$path" "$stage/pack/lib/$(basename "$path")"
done
cp -r configs "$stage/pack/configs"
cat > "$stage/pack/run_gpu_tests.sh" <<'RUN'
#!/usr/bin/env bash
# Runs every CUDA instance of the tests (names that end in cuda, and the GPU programs); a prefix (compute-sanitizer …) may be given.
cd "$(dirname "$0")" || exit 1
export BANTAM_PROGRAM=$PWD/bin/bantam
failed=0
for test in bin/tests_*; do
  filter='*cuda' sources=
  case $test in
    *tests_memory_cuda) filter='*' ;;
    *tests_cli) filter='*' sources=--source=gpu_test,gpu_memory_test ;;
  esac
  GTEST_FILTER=$filter "$test" --gtest_list_tests | grep -q '^ ' || continue  # no test of the kind in this program
  out=$(GTEST_FILTER=$filter timeout "${TEST_SECONDS:-300}" "$@" "$test" $sources 2>&1); rc=$?
  summary=$(grep -E '^\[  PASSED  \]|^\[  FAILED  \]|ERROR SUMMARY' <<<"$out" | tr '\n' ' ')
  if [ $rc -ne 0 ] || grep -q 'SKIPPED' <<<"$out"; then failed=1; echo "FAIL $(basename "$test") rc=$rc $summary"; grep -vE '^\[ RUN|^\[       OK|^\[---|^$' <<<"$out" | head -${TEST_LINES:-40}
  else echo "ok   $(basename "$test") $summary"; fi
done
exit $failed
RUN
chmod +x "$stage/pack/run_gpu_tests.sh"
tar -C "$stage" -cf - pack | xz -T1 --lzma2=preset=1,dict=768MiB > "$archive"
ls -l "$archive"
