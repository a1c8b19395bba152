# Short verbs; each installs and builds what it needs. `make help` lists them.

BUILD := build/release
JOBS  := $(shell nproc)

.DEFAULT_GOAL := help
.PHONY: help setup setup-test configure build run test fuzz bench sanitize format lint house cuda bundle deb clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## */\1\t/p' Makefile | expand -t 14

setup:           ## install what building needs (Debian packages; root or a list of what is missing)
	@scripts/setup.sh

setup-test:
	@scripts/setup.sh --test

configure: setup
	@test -f $(BUILD)/build.ninja || cmake --preset release $(CMAKE_FLAGS) >/dev/null

build: configure ## build build/release/tandem
	@ninja -C $(BUILD) -j$(JOBS) --quiet tandem
	@echo "built $(BUILD)/tandem"

run: build       ## serve the bundled model and print where the chat page is
	@$(BUILD)/tandem serve $(ARGS)

test: setup-test ## build everything and run every test
	@scripts/test.sh

fuzz: setup-test ## coverage-guided fuzzing of every parser, SECONDS=60 each
	@scripts/fuzz.sh all $(or $(SECONDS),60) $(ARGS)

bench: build     ## operator and planner benchmarks
	@ninja -C $(BUILD) -j$(JOBS) --quiet benches
	@scripts/bench.sh

sanitize:        ## unit tests and server sessions under AddressSanitizer + UBSan, then under ThreadSanitizer
	@scripts/sanitize.sh

format:          ## reformat the C++ sources
	@git ls-files 'src/*.cc' 'src/*.h' 'gates/*.cc' 'gates/*.h' | xargs clang-format -i

lint: house      ## house rules, then clang-tidy over what changed against main
	@git diff --name-only main -- 'src/*.cc' | xargs -r clang-tidy -p $(BUILD) --quiet

house:           ## includes between rooms, file sizes, paths
	@python3 scripts/check_house.py

cuda: setup      ## compile the CUDA backend (needs nvcc)
	@cmake --preset cuda -DTANDEM_WERROR="$${CI:+ON}" >/dev/null && ninja -C build/cuda -j$(JOBS) --quiet tandem_cuda tandem_cuda_tests cuda_operators_bench

bundle: build    ## a folder that runs on another host: build/bundle
	@scripts/bundle.sh

deb: build       ## a Debian package: build/tandem_VERSION_amd64.deb
	@scripts/deb.sh

clean:           ## remove build products
	@rm -rf build
