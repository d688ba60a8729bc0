# The front door: `make train` and `make test` work from a fresh clone. The build itself is CMake's.
.DEFAULT_GOAL := help
.PHONY: help deps deps-check build train test check nightly nightly-long nightly-asan nightly-tsan nightly-own nightly-fuzz fuzz schema reference install wheel dist deb format clean

BUILD ?= build
PREFIX ?= /usr/local
# More CMake options, e.g. make build CMAKE_FLAGS=-DBANTAM_CUDA=OFF
CMAKE_FLAGS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

deps: ## install the Debian packages that are missing (nothing when all are there)
	@scripts/install_deps.sh

build: deps ## build the program, build/bantam
	@scripts/build.sh "$(BUILD)" "$(JOBS)" bantam $(CMAKE_FLAGS)

train: build ## build, then train configs/quickstart.yaml
	"$(BUILD)/bantam" train configs/quickstart.yaml

test: deps ## build everything and run every test
	@scripts/build.sh "$(BUILD)" "$(JOBS)" all $(strip $(CMAKE_FLAGS))
	ctest --test-dir "$(BUILD)" --output-on-failure --no-tests=error

# Without them the check says so and skips what needs them: a machine without apt or network checks the rest.
deps-check: deps
	@scripts/install_deps.sh clang-format clang-tidy || echo "check: no clang-format or clang-tidy could be installed" >&2

# Warnings are errors here alone. CI passes the same flag to `make test`, so that one build serves both.
CHECK_FLAGS = $(filter-out -DBANTAM_WERROR=ON,$(CMAKE_FLAGS)) -DBANTAM_WERROR=ON

check: deps-check ## check format, changed lines (clang-tidy), rules of includes, generated docs and words
	@scripts/build.sh "$(BUILD)" "$(JOBS)" check_tests $(strip $(CHECK_FLAGS))
	@scripts/check.sh "$(BUILD)"

nightly: nightly-long nightly-asan nightly-tsan nightly-own nightly-fuzz ## run what takes long: allocator fuzzer, planner, limits under load, sanitizers, fuzzers

nightly-long: deps
	@scripts/build.sh "$(BUILD)" "$(JOBS)" nightly_tests $(CMAKE_FLAGS)
	ctest --test-dir "$(BUILD)" -C nightly -L nightly -j "$(JOBS)" --output-on-failure --no-tests=error
	@stat -c "the program of make dist: %s bytes" build-dist-test/bantam-*/bin/bantam

# AddressSanitizer and UndefinedBehaviorSanitizer on the unit tests, ThreadSanitizer on those in which threads work: presets asan and tsan,
# on the CPU, in folders of their own.
nightly-asan: deps
	@scripts/build.sh build-asan "$(JOBS)" unit_tests --preset asan
	ctest --preset asan -L unit -j "$(JOBS)"

nightly-tsan: deps
	@scripts/build.sh build-tsan "$(JOBS)" thread_tests --preset tsan
	ctest --preset tsan -C nightly -L threads -j "$(JOBS)"

# Convolutions in a build without oneDNN.
nightly-own: deps
	@for test in conv2d conv2d_inference conv2d_statistics; do \
	  scripts/build.sh build-own "$(JOBS)" $${test}_test -DBANTAM_CUDA=OFF -DBANTAM_ONEDNN=OFF || exit 1; done
	ctest --test-dir build-own -R '^conv2d(_inference|_statistics)?_test$$' --output-on-failure --no-tests=error

# Readers of files from elsewhere under libFuzzer (clang) for so many seconds each: about 10^7 executions in half an hour of one core.
FUZZ_SECONDS ?= 30
fuzz: deps ## fuzz the readers of files for FUZZ_SECONDS each (libFuzzer; needs clang)
	@scripts/build.sh "$(BUILD)" "$(JOBS)" fuzz_replay_test $(CMAKE_FLAGS)
	tests/fuzz/fuzz_readers.py "$(BUILD)" --seconds "$(FUZZ_SECONDS)"

nightly-fuzz: FUZZ_SECONDS = 1800
nightly-fuzz: fuzz

schema: build ## write docs/CONFIG.md anew, from the code that reads configurations
	"$(BUILD)/bantam" schema --markdown > "$(BUILD)/CONFIG.md"
	cp "$(BUILD)/CONFIG.md" docs/CONFIG.md

reference: ## write the reference of the C++ API (doxygen) to BUILD/reference/html
	@scripts/install_deps.sh doxygen || echo "reference: doxygen could not be installed" >&2
	@tests/docs/check_reference.py --source . --output "$(BUILD)/reference"

install: build ## install program, libraries, headers and shell completion below PREFIX (/usr/local)
	cmake --install "$(BUILD)" --prefix "$(PREFIX)"

dist: deps ## pack a program that needs libc alone, build-dist/bantam-*.tar.xz
	@scripts/dist.sh build-dist "$(JOBS)" $(CMAKE_FLAGS)

deb: deps ## pack Debian packages, build-deb/debs/*.deb
	@scripts/deb.sh build-deb "$(JOBS)" $(CMAKE_FLAGS)

# CMAKE_FLAGS=-DBANTAM_CUDA=OFF for one without GPUs.
wheel: deps ## build the Python package: build-wheel/bantam-VERSION-py3-none-linux_x86_64.whl
	@scripts/install_deps.sh liblzma-dev libzstd-dev libbz2-dev
	@scripts/build.sh build-wheel "$(JOBS)" bantam_python -DBANTAM_TESTS=OFF -DBANTAM_EXAMPLES=OFF -DBANTAM_ONEDNN=OFF \
	  -DBANTAM_FMT_HEADER_ONLY=ON -DLibArchive_LIBRARY="$$($(CXX) -print-file-name=libarchive.a)" $(CMAKE_FLAGS)
	scripts/make_wheel.py build-wheel

format: ## format the sources with clang-format
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

clean: ## remove the build folder
	rm -rf "$(BUILD)"
