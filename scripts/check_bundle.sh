#!/usr/bin/env bash
# Makes the bundle (which refuses to be too large) and starts the program in it: on the CPU, and with --device cuda, which
# without a driver must be a refusal that says what would help, before any model file is opened.
#
#   scripts/check_bundle.sh [FOLDER]     default build/bundle
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/bundle}
scripts/bundle.sh "$out"

refuse() {
  echo "bundle: $1" >&2
  exit 1
}
"$out/tandem" serve --device cpu --check >/dev/null || refuse "it does not start on the CPU"
[ -f "$out/libtandem_cuda.so" ] || exit 0
status=0
said=$("$out/tandem" serve --device cuda --check 2>&1) || status=$?
if nvidia-smi -L >/dev/null 2>&1; then
  [[ $status = 0 && $said = *capacity* ]] || refuse "--device cuda with a driver: $said"
else
  [[ $status = 1 && $said = *"no CUDA device can be used"* && $said = *"--device cpu"* ]] || refuse "--device cuda without a driver: $said"
  echo "bundle: without a driver it says: $said"
fi
