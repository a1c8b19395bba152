#!/usr/bin/env bash
# Gates on a GPU machine, from the bundle that scripts/bundle.sh makes; builds nothing. Prints one table at the end:
# gate, backend, degree, result, figure. $OUT (default: a new folder in the system's temporary one) gets the table, the
# figures and the picture, and all logs in one archive, renewed after every part. $WORK keeps fabricated checkpoints.
# The exit status is the number of gates that did not pass, figures below their floor included.
#
#   gates/device.sh ops        every CUDA operator against the reference
#   gates/device.sh hf         the Hugging Face gate on every fixture, those of real size included
#   gates/device.sh mutations  every fault of the mutation table must fail the gate of the 4B geometry
#   gates/device.sh soak       random requests on the device against itself alone, and against the CPU's operators
#   gates/device.sh sanitize   compute-sanitizer's memcheck, racecheck and initcheck on the operators' tests and a small model
#   gates/device.sh smoke      tandem serve: streaming chat, 64 concurrent requests over HTTP
#   gates/device.sh bench      operators and workloads on the fabricated 4B geometry, against the floors of gates/floors.py
#   gates/device.sh trace      a decoding stream's timeline: launches, gaps, where a step's time goes
#   gates/device.sh p1         gates/device_p1.sh: tensor parallelism, on a machine with several GPUs
#   gates/device.sh all        everything but p1, in this order
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
[ "$what" = p1 ] && exec gates/device_p1.sh "${@:2}"
case $what in ops | hf | mutations | soak | sanitize | smoke | bench | trace | all) ;; *) sed -n '2,16p' "$0" && exit 2 ;; esac
results=${OUT:-$(mktemp -d)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=$scratch/logs
work=${WORK:-$scratch/work}
mkdir -p "$out" "$work" "$results"

cuda_libraries=$(dirname "$(find /usr/local /opt -name 'libcublasLt.so.13' 2>/dev/null | head -n 1)")
export LD_LIBRARY_PATH="$PWD:$PWD/lib:$cuda_libraries"
small=gates/fixtures/r2-g4-untied.json

rows=()
failures=0
row() {  # gate, result, figure
  rows+=("$(printf '%-31s cuda     TP1  %-7s %s' "$1" "$2" "$3")")
  [ "$2" = pass ] || [ "$2" = note ] || failures=$((failures + 1))
}
wanted() { [ "$what" = "$1" ] || [ "$what" = all ]; }
report() {
  write_table
  pack
  echo "== $1 (${SECONDS} s)"
}
write_table() {
  {
    printf '%-31s %-8s %-4s %-7s %s\n' gate backend "" result figure
    [ ${#rows[@]} -eq 0 ] || printf '%s\n' "${rows[@]}"
  } >"$out/table.txt"
}
pack() {
  tar -czf "$results/logs.tgz" -C "$scratch" logs 2>/dev/null  # the sanitizers write on
  for file in table.txt workloads.json workloads.txt operators.txt trace.txt decode-step.svg; do
    [ -f "$out/$file" ] && cp "$out/$file" "$results/"
  done
}
found() { command -v "$1" 2>/dev/null || find /usr/local /opt -name "$1" -type f -perm -u+x 2>/dev/null | head -n 1; }
make_4b() { [ -f "$work/4b/config.json" ] || ./tandem fabricate 4B "$work/4b" >"$out/fabricate.txt" 2>&1; }

# compute-sanitizer runs beside the other gates of correctness, which leave most of the machine free: the operators' tests
# and, on a small model, the soak. racecheck is slow (half a second a launch of the block kernel), so it gets the tests in
# shares and no soak; without the published sizes, every plan of few_tokens, most rounds of the sampler and the tests of edges,
# which memcheck gets as a share of its own. It reports races in
# cuBLAS's kernels (nvjet), which order their tiles by means that it does not follow; those are not counted. They cannot be
# left out beforehand: with any filter of kernels the tool itself ends by an illegal access.
race_shares=('CudaDeltaDecode*' 'CudaDeltaChunks*' 'CudaDeltaMixer*' 'BlockTest.*-BlockTest.*Size' 'FewTokens.*-FewTokens.*EveryPlan*'
  'CudaLinear.*' 'CudaSample.EveryPath*' '-CudaDelta*:BlockTest.*:FewTokens.*:CudaLinear.*:CudaSample*:*Edges.*')
start_sanitizers() {
  sanitizer=$(found compute-sanitizer)
  [ -n "$sanitizer" ] || return
  [ -f "$work/r2-g4-untied/config.json" ] || ./tandem gate "$small" --device cuda --work "$work" >/dev/null 2>&1
  local tool tests share=0
  check() { timeout 150 "$sanitizer" --tool "$1" --print-limit 1000 "${@:3}" >"$out/sanitize-$1-$2.txt" 2>&1; }
  for tests in "${race_shares[@]}"; do
    check racecheck "operators-$share" ./tandem_cuda_tests --gtest_filter="$tests" &
    share=$((share + 1))
  done
  for tool in memcheck initcheck; do
    check "$tool" operators-0 ./tandem_cuda_tests --gtest_filter='-*Edges.*' &
    # The tools keep shadows of the device's memory and share it here, which start-up would take for its own overhead.
    check "$tool" soak-0 ./tandem soak --fixture "$small" --work "$work" --device cuda --reserve-memory 60G --rule logits \
      --requests 6 --rounds 2 --step-deadline 100 --init-deadline 120 --load-deadline 100 &
  done
  check memcheck operators-1 ./tandem_cuda_tests --gtest_filter='*Edges.*' &
}
wanted sanitize && start_sanitizers

if wanted ops; then
  report operators
  if timeout 150 ./tandem_cuda_tests >"$out/ops.txt" 2>&1; then result=pass; else result=FAIL; fi
  row operators "$result" "$(grep -oE '[0-9]+ tests? from .* ran' "$out/ops.txt" | head -n 1)"
  grep -E 'FAILED|Failure' "$out/ops.txt" | head -n 20
fi

if wanted hf; then
  report "Hugging Face gate"
  : >"$out/hf.txt"
  for fixture in gates/fixtures/*.json gates/fixtures/device/*.json; do
    [ -f "$fixture" ] || continue
    name=$(basename "$fixture" .json)
    if timeout 100 ./tandem gate "$fixture" --device cuda --work "$work" >"$work/hf.txt" 2>&1; then result=pass; else result=FAIL; fi
    row "hf $name" "$result" "$(awk '$1 == "mean" {m = $2 " ratio " $6} $1 == "p99" {p = $6} $1 == "regret" {r = $2 " of " $10}
      END {print "mean " m ", p99 ratio " p ", regret " r}' "$work/hf.txt")"
    [ "$result" = pass ] || tail -n 5 "$work/hf.txt"
    cat "$work/hf.txt" >>"$out/hf.txt"
  done
fi

if wanted mutations; then
  report "mutation table"
  if timeout 150 ./tandem gate gates/fixtures/device/4b.json --device cuda --work "$work" --mutations >"$out/mutations.txt" 2>&1; then result=pass; else result=FAIL; fi
  row "hf 4b, faults built in" "$result" "$(awk '/: noticed/ {++n; v = substr($0, index($0, "(mean ") + 6) + 0; if (!low || v < low) low = v} /NOT NOTICED/ {++missed}
    END {print n + 0 " noticed, " missed + 0 " missed; the weakest " low " x floor"}' "$out/mutations.txt")"
  [ "$result" = pass ] || tail -n 5 "$out/mutations.txt"
fi

# Name, file, flags of one soak. Two engines share the device, and each takes the other's memory for its own overhead.
soak() {
  local name=$1 log=$out/$2.txt
  shift 2
  if timeout 100 ./tandem soak --work "$work" --device cuda --reserve-memory 60G --rounds 3 --seed "${SEED:-1}" "$@" >"$log" 2>&1; then result=pass; else result=FAIL; fi
  row "$name" "$result" "$(awk '/^soak/ {
      for (i = 1; i <= NF; ++i) {if ($i == "requests") n += $(i-1); if ($i ~ /^compared/) t += $(i-2); if ($i == "first") d += $(i-1)
        if ($i == "(widest" && $(i+1) > w) w = $(i+1); if ($i == "by" && $(i+1) > m) m = $(i+1); if ($i == "p99" && $(i+1) > p) p = $(i+1)}}
    END {printf "%d requests, %d tokens; ", n, t
      if (p) printf "8 best logprobs apart by %.4f in the mean, p99 %.4f", m, p
      else printf "%d first differences, widest %.4f; logprobs apart by %.5f in the mean", d, w, m}' "$log")"
  [ "$result" = pass ] || tail -n 5 "$log"
}

if wanted soak; then
  report soak
  soak "soak beside others = alone" soak-alone --fixture "$small" --against device --requests 60
  soak "soak, logits of the CPU" soak-logits --fixture "$small" --against fast --rule logits --requests 60
  soak "soak, tokens of the CPU" soak-tokens --fixture gates/fixtures/soak/r2-g4-calm.json --against fast --requests 60
fi

if wanted sanitize; then
  report compute-sanitizer
  wait
  for tool in memcheck racecheck initcheck; do
    for load in operators soak; do
      [ "$tool-$load" = racecheck-soak ] && continue
      shares=1 log=$out/sanitize-$tool-$load.txt
      [ "$tool-$load" = memcheck-operators ] && shares=2
      [ "$tool-$load" = racecheck-operators ] && shares=${#race_shares[@]}
      if [ -z "$sanitizer" ]; then
        row "sanitize $tool, $load" note "this machine has no compute-sanitizer"
        continue
      fi
      cat "$out/sanitize-$tool-$load"-[0-9].txt >"$log" && rm "$out/sanitize-$tool-$load"-[0-9].txt
      reports=$(awk '/(ERROR|RACECHECK) SUMMARY: [0-9]/ {for (i = 1; i < NF; ++i) if ($i == "SUMMARY:") n += $(i + 1)} END {print n + 0}' "$log")
      foreign=$(grep -cE '^=+ (Error|Warning): Race .* at nvjet_' "$log")
      ended=$(grep -cE '(ERROR|RACECHECK) SUMMARY' "$log")
      tests=$(grep -cE '^\[       OK \]' "$log") rounds=$(grep -cE '^soak.*SAME' "$log")
      failed=$(grep -cE 'FAILED|DIFFERENT|^tandem:' "$log")
      if [ "$ended" = "$shares" ] && [ "$reports" = "$foreign" ] && [ "$failed" = 0 ] && [ $((tests + rounds)) -ge 2 ]; then
        row "sanitize $tool, $load" pass "$([ "$load" = soak ] && echo "$rounds rounds" || echo "$tests tests"): 0 reports$([ "$foreign" -gt 0 ] && echo " in Tandem's kernels, $foreign in cuBLAS's")"
      elif grep -qiE 'device not supported|unable to|not permitted' "$log" && [ "$ended" = 0 ]; then
        row "sanitize $tool, $load" note "this machine refused: $(grep -iE 'device not supported|unable to|not permitted' "$log" | head -n 1)"
      else
        row "sanitize $tool, $load" FAIL "$((reports - foreign)) reports, $failed failed, $ended of $shares ended within 150 s"
        grep -E '^=+ [A-Z]' "$log" | sort | uniq -c | sort -rn | head -n 8
      fi
    done
  done
fi

if wanted smoke; then
  report "HTTP smoke"
  make_4b
  for model in models/tandem-tiny "$work/4b"; do
    name=$(basename "$model")
    if figure=$(timeout 100 python3 gates/smoke.py ./tandem "$model" "$out/smoke-$name.txt"); then result=pass; else result=FAIL; fi
    row "smoke $name" "$result" "$figure"
    [ "$result" = pass ] || tail -n 5 "$out/smoke-$name.txt"
  done
fi

if wanted bench; then
  report "operators' times"
  timeout 100 ./cuda_operators_bench >"$out/operators.txt" 2>&1
  for bench in block_bench delta_cuda_bench; do
    printf '\n# %s\n' "$bench" >>"$out/operators.txt"
    timeout 60 "./$bench" >>"$out/operators.txt" 2>&1
  done
  report workloads
  make_4b
  timeout 150 ./tandem bench "$work/4b" --device cuda --max-requests 128 --max-context 16384 \
    --workload solo,prompt-8k,batch-8,batch-64,batch-128,mixed,saturate --json "$out/workloads.json" 2>&1 | tee "$out/workloads.txt"
fi

if wanted trace; then
  report timeline
  make_4b
  cupti=$(find /usr/local /opt -name 'libcupti.so.13' 2>/dev/null | head -n 1)
  if [ -f libtandem_trace.so ] && [ -n "$cupti" ]; then
    for graphs in 0 1; do
      LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$(dirname "$cupti")" CUDA_INJECTION64_PATH="$PWD/libtandem_trace.so" TANDEM_TRACE_GRAPHS=$graphs \
        TANDEM_TRACE="$work/trace$graphs.csv" timeout 60 ./tandem bench "$work/4b" --device cuda --max-requests 8 --max-context 4096 --workload solo \
        --repetitions 1 --output-tokens 128 >"$out/trace-bench$graphs.txt" 2>&1
    done
    timeout 60 python3 tools/plot_timeline.py "$work/trace0.csv" --graphs "$work/trace1.csv" --svg "$out/decode-step.svg" --json "$out/trace.json" \
      --title "One decode step of Qwen3.5-4B on one H200, one stream, traced" >"$out/trace.txt" 2>&1
    head -n 40 "$out/trace.txt"
    [ -f "$out/trace.json" ] || row timeline FAIL "no figures; see trace.txt and trace-bench0.txt"
  else
    row timeline note "libtandem_trace.so or the machine's libcupti.so.13 is missing"
  fi
fi

if wanted bench || wanted trace; then
  while IFS=$'\t' read -r gate result figure; do row "$gate" "$result" "$figure"; done < <(python3 gates/floors.py "$out")
fi

write_table
cat "$out/table.txt"
pack
echo "logs: $results; ${SECONDS} s"
exit "$failures"
