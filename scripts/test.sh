#!/usr/bin/env bash
# Every test that this machine can run, quickest first. Called by `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)

step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

step "house rules"
python3 scripts/check_house.py

step "build"
cmake --preset release -DTANDEM_WERROR="${CI:+ON}" >/dev/null
ninja -C build/release -j"$jobs" --quiet

step "unit tests"
ctest --test-dir build/release -j"$jobs" --output-on-failure --no-tests=error -Q -O build/release/ctest.log ||
  { grep -E '\*\*\*|FAILED|Failure|error' build/release/ctest.log | head -80; exit 1; }
tail -n 4 build/release/ctest.log

if compgen -G "tests/*/*_test.py" >/dev/null || compgen -G "tests/*/test_*.py" >/dev/null; then
  step "tests in Python: HTTP with the official client, tokenizer and template against their originals"
  TANDEM_BIN="$PWD/build/release/tandem" .venv/bin/python -m pytest -q -p no:cacheprovider tests
fi
step "done"
