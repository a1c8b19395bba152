#!/usr/bin/env bash
# Runs every benchmark program of build/release (the target `benches`), or those whose names are given.
set -euo pipefail
cd "$(dirname "$0")/.."
names=("$@")
[ "${#names[@]}" -gt 0 ] || mapfile -t names < <(find build/release -maxdepth 3 -type f -name '*_bench' -executable -printf '%f\n' | sort)
for name in "${names[@]}"; do
  echo "== $name"
  "$(find build/release -maxdepth 3 -type f -name "$name" -executable | head -n 1)"
done
