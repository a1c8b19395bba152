#!/usr/bin/env bash
# Unit tests under the sanitizers. `scripts/sanitize.sh asan|tsan` runs one of the two.
set -euo pipefail
cd "$(dirname "$0")/.."
for preset in ${1:-asan tsan}; do
  echo "== $preset"
  cmake --preset "$preset" >/dev/null
  ninja -C "build/$preset" -j"$(nproc)" --quiet
  TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}" \
    ctest --test-dir "build/$preset" -j"$(nproc)" --output-on-failure --no-tests=error
done
