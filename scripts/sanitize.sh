#!/usr/bin/env bash
# Every unit test, the Hugging Face gate on two and four ranks, and sessions of the server under a sanitizer.
# `scripts/sanitize.sh asan` is AddressSanitizer (with leaks) and UndefinedBehaviorSanitizer, `tsan` is
# ThreadSanitizer; without an argument both run. A report anywhere, also of a server that a test ends, fails.
# What runs, how long it takes and what it found: docs/gates.md.
#
# No test is shortened for a sanitizer; only bounds of time are stretched. The one thing that ThreadSanitizer does not
# watch element by element is the sums inside the reference operators (src/ops/reference/sums.cc).
# Left out, since the same code runs in `make test`: the gate on one rank, with the reference operators, of long prompts
# and of mutations, and the soak.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --test
jobs=$(nproc)

sanitize() {
  local preset=$1 dir="build/$1" begin=$SECONDS
  local reports="$PWD/$dir/reports"
  step() { printf '\n== %s: %s (%s s)\n' "$preset" "$1" "$((SECONDS - begin))"; }

  step "build"
  cmake --preset "$preset" >/dev/null
  ninja -C "$dir" -j"$jobs" --quiet

  rm -rf "$reports" && mkdir -p "$reports"
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:log_path=$reports/asan"
  export UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/ubsan"
  # A replica whose rank is stuck leaves by _exit with its threads where they are: no leak.
  export TSAN_OPTIONS="second_deadlock_stack=1:report_thread_leaks=0:log_path=$reports/tsan"

  step "unit tests"
  ctest --test-dir "$dir" -j"$jobs" -L unit --timeout 1200 --output-on-failure --no-tests=error -Q -O "$dir/ctest.log" ||
    { grep -E '\*\*\*|FAILED|Failure|ERROR|WARNING' "$dir/ctest.log" | head -80; show_reports; return 1; }
  grep 'tests passed' "$dir/ctest.log"

  step "the Hugging Face gate on two and four ranks"
  ctest --test-dir "$dir" -j"$jobs" -R '^gate\..*\.fast\.tp[24]$' -E '-long\.' --timeout 1200 --output-on-failure --no-tests=error -Q -O "$dir/gate.log" ||
    { tail -40 "$dir/gate.log"; show_reports; return 1; }
  grep 'tests passed' "$dir/gate.log"

  # TANDEM_TEST_PATIENCE stretches the bounds of time in the tests, which are those of a release build.
  step "sessions of the server: HTTP, two and four ranks, failing ranks, refusals"
  TANDEM_BIN="$PWD/$dir/tandem" TANDEM_HTTP_FAKE="$PWD/$dir/tandem_http_fake" TANDEM_TEST_PATIENCE=10 \
    .venv/bin/python -m pytest -q -p no:cacheprovider tests/http tests/cli || { show_reports; return 1; }

  show_reports
  step "clean: no report"
}

show_reports() {
  local found
  found=$(find "$reports" -type f | sort)
  [ -z "$found" ] && return 0
  echo "sanitize: $(wc -l <<<"$found") reports in $reports, the first of them:" >&2
  head -60 "$(head -1 <<<"$found")" >&2
  return 1
}

for preset in ${1:-asan tsan}; do sanitize "$preset"; done
