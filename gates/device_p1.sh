#!/usr/bin/env bash
# Phase 1 on a machine with two GPUs, from the bundle that scripts/bundle.sh makes; builds nothing. Prints one table at the
# end: gate, backend, degree, result, figure. Logs lie under $OUT (default: a new folder in the system's temporary one).
#
#   gates/device_p1.sh                every part
#   gates/device_p1.sh comm hf        these parts: comm, ranks, hf, soak, refusals, smoke, faults, bench
set -uo pipefail
cd "$(dirname "$0")/.."
parts=${*:-comm ranks hf soak refusals smoke faults bench}
out=${OUT:-$(mktemp -d)}
work=${WORK:-$(mktemp -d)}
mkdir -p "$out" "$work"
folder() { dirname "$(find /usr/local /opt /usr/lib -name "$1" 2>/dev/null | head -n 1)"; }
export LD_LIBRARY_PATH="$PWD:$PWD/lib:$(folder libcublasLt.so.13):$(folder libnccl.so.2)"
export NCCL_NVLS_ENABLE=0
table=$out/p1-table.txt
: >"$table"
failures=0
row() {  # gate, degree, result, figure
  printf '%-34s cuda  %-4s %-5s %s\n' "$1" "$2" "$3" "$4" | tee -a "$table"
  [ "$3" = pass ] || failures=$((failures + 1))
}
has() { [[ " $parts " == *" $1 "* ]]; }

if has comm; then
  if timeout 120 ./tandem_cuda_rank_tests --gtest_filter='*Choice*:OneShot*' >"$out/p1-comm.txt" 2>&1; then result=pass; else result=FAIL; fi
  row "communicators" TP2 "$result" "$(grep -E '^\[  PASSED|^\[  FAILED' "$out/p1-comm.txt" | head -n 1)"
  grep -E '^\[  FAILED|Failure' -A4 "$out/p1-comm.txt" | head -n 40
  timeout 60 ./peer_bench >"$out/p1-all-reduce.txt" 2>&1 || row "all-reduce bench" TP2 FAIL "$(tail -n 1 "$out/p1-all-reduce.txt")"
  cat "$out/p1-all-reduce.txt"
fi

if has ranks; then
  if timeout 150 ./tandem_cuda_rank_tests --gtest_filter='*Cuda*' >"$out/p1-ranks.txt" 2>&1; then result=pass; else result=FAIL && echo "exit status $?" >>"$out/p1-ranks.txt"; fi
  row "ranks: bits, hashes, failures" TP2 "$result" "$(grep -E '^\[  PASSED|^\[  FAILED' "$out/p1-ranks.txt" | head -n 1)"
  grep -E '^one rank|ranks ended' "$out/p1-ranks.txt"
  grep -E '^\[  FAILED|Failure' -A4 "$out/p1-ranks.txt" | head -n 40
fi

if has hf; then
  for fixture in gates/fixtures/*.json gates/fixtures/device/*.json; do
    [ -f "$fixture" ] || continue
    name=$(basename "$fixture" .json)
    for degree in 1 2; do
      log=$out/p1-hf-$name-tp$degree.txt
      timeout 120 ./tandem gate "$fixture" --device cuda --tp "$degree" --work "$work" >"$log" 2>&1 && result=pass || result=FAIL
      row "hf $name" "TP$degree" "$result" "$(awk '$1 == "mean" {m = $2 " ratio " $6} $1 == "p99" {p = $6} END {print "mean " m ", p99 ratio " p ", same bits twice"}' "$log")"
      [ "$result" = pass ] || tail -n 4 "$log"
    done
  done
fi

# Name, file, flags of one soak on two ranks.
soak() {
  local name=$1 log=$out/p1-$2.txt
  shift 2
  timeout 100 ./tandem soak --work "$work" --device cuda --tp 2 --reserve-memory 60G --rounds 3 "$@" >"$log" 2>&1 && result=pass || result=FAIL
  row "$name" TP2 "$result" "$(grep -c 'SAME' "$log") of 3 rounds; $(grep -oE 'apart by [0-9.]+ (of [0-9.]+ )?in the mean' "$log" | sort | tail -n 1)"
  [ "$result" = pass ] || tail -n 5 "$log"
}
if has soak; then
  soak "soak beside others = alone" soak-alone --fixture gates/fixtures/r2-g4-untied.json --against device --requests 60
  soak "soak, logits of one rank" soak-logits --fixture gates/fixtures/r2-g4-untied.json --against one-rank --rule logits --requests 60
  soak "soak, tokens of one rank" soak-tokens --fixture gates/fixtures/soak/r2-g4-calm.json --against one-rank --requests 60
fi

for part in refusals smoke faults; do
  has "$part" || continue
  timeout 300 python3 gates/p1_serve.py "$part" >"$out/p1-$part.txt" 2>&1
  [ $? -le 1 ] || row "$part" TP2 FAIL "did not finish: $(tail -n 1 "$out/p1-$part.txt")"
  while IFS='|' read -r _ gate degree result figure; do row "$gate" "$degree" "$result" "$figure"; done < <(grep '^ROW|' "$out/p1-$part.txt")
  grep -v '^ROW|' "$out/p1-$part.txt" | tail -n 20
done

if has bench; then
  [ -d "$work/4b" ] || ./tandem fabricate 4B "$work/4b" >/dev/null
  for degree in 1 2; do
    timeout 200 ./tandem bench "$work/4b" --device cuda --tp "$degree" --max-requests 64 --max-context 16384 \
      --workload solo,prompt-8k,batch-64 --json "$out/p1-workloads-tp$degree.json" >"$out/p1-workloads-tp$degree.txt" 2>&1 ||
      row "workloads" "TP$degree" FAIL "$(tail -n 1 "$out/p1-workloads-tp$degree.txt")"
    cat "$out/p1-workloads-tp$degree.txt"
  done
fi

echo
cat "$table"
echo "logs: $out"
exit "$((failures > 0))"
