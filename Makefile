# The front door: `make train` and `make test` work from a fresh clone. The build itself is CMake's.
.DEFAULT_GOAL := help
.PHONY: help deps build train test nightly schema format clean

BUILD ?= build
# More CMake options, e.g. make build CMAKE_FLAGS=-DBANTAM_CUDA=OFF
CMAKE_FLAGS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

deps: ## install the Debian packages that are missing (nothing when all are there)
	@scripts/install_deps.sh

build: deps ## build the program, build/bantam
	@scripts/build.sh "$(BUILD)" "$(JOBS)" bantam $(CMAKE_FLAGS)

train: build ## build, then train configs/quickstart.yaml
	"$(BUILD)/bantam" train configs/quickstart.yaml

test: deps ## build everything and run every test
	@scripts/build.sh "$(BUILD)" "$(JOBS)" all $(CMAKE_FLAGS)
	ctest --test-dir "$(BUILD)" --output-on-failure --no-tests=error

nightly: deps ## run the tests that take long: allocator fuzzer, planner, limits under load
	@scripts/build.sh "$(BUILD)" "$(JOBS)" nightly_tests $(CMAKE_FLAGS)
	ctest --test-dir "$(BUILD)" -C nightly -L nightly --output-on-failure --no-tests=error

schema: build ## write docs/CONFIG.md anew, from the code that reads configurations
	"$(BUILD)/bantam" schema --markdown > "$(BUILD)/CONFIG.md"
	cp "$(BUILD)/CONFIG.md" docs/CONFIG.md

format: ## format the sources with clang-format
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

clean: ## remove the build folder
	rm -rf "$(BUILD)"
