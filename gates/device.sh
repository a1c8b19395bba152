#!/usr/bin/env bash
# Gates on a GPU machine, from the bundle that scripts/bundle.sh makes; builds nothing. Prints one table at the end:
# gate, backend, degree, result, figure. Logs lie under $OUT (default: a new folder in the system's temporary one).
#
#   gates/device.sh ops     every CUDA operator against the reference
#   gates/device.sh hf      the Hugging Face gate on every fixture
#   gates/device.sh bench   operators, then workloads on the fabricated 4B geometry
#   gates/device.sh all     all three
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
out=${OUT:-$(mktemp -d)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cuda_libraries=$(dirname "$(find /usr/local /opt -name 'libcublasLt.so.13' 2>/dev/null | head -n 1)")
export LD_LIBRARY_PATH="$PWD:$PWD/lib:$cuda_libraries"

rows=()
failures=0
row() {  # gate, result, figure
  rows+=("$(printf '%-28s cuda     TP1  %-5s %s' "$1" "$2" "$3")")
  [ "$2" = pass ] || failures=$((failures + 1))
}

if [ "$what" = ops ] || [ "$what" = all ]; then
  if timeout 300 ./tandem_cuda_tests >"$out/ops.txt" 2>&1; then result=pass; else result=FAIL; fi
  row operators "$result" "$(grep -oE '[0-9]+ tests? from .* ran' "$out/ops.txt" | head -n 1)"
  grep -E 'FAILED|Failure' "$out/ops.txt" | head -n 20
fi

if [ "$what" = hf ] || [ "$what" = all ]; then
  for fixture in gates/fixtures/*.json; do
    name=$(basename "$fixture" .json)
    if timeout 300 ./tandem gate "$fixture" --device cuda --work "$work" >"$out/hf-$name.txt" 2>&1; then result=pass; else result=FAIL; fi
    row "hf $name" "$result" "mean $(awk '$1 == "mean" {print $2, "ratio", $6}' "$out/hf-$name.txt")"
    [ "$result" = pass ] || tail -n 5 "$out/hf-$name.txt"
  done
fi

if [ "$what" = bench ] || [ "$what" = all ]; then
  timeout 300 ./cuda_operators_bench | tee "$out/operators.txt"
  ./tandem fabricate 4B "$work/4b" >/dev/null
  timeout 500 ./tandem bench "$work/4b" --device cuda --max-requests 128 --max-context 16384 \
    --workload solo,prompt-2k,prompt-8k,batch-8,batch-64,saturate,mixed --json "$out/workloads.json" | tee "$out/workloads.txt"
fi

printf '%s\n' "${rows[@]}"
echo "logs: $out"
exit "$((failures > 0))"
