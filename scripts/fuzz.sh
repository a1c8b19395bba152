#!/usr/bin/env bash
# Coverage-guided fuzzing of the parsers, under AddressSanitizer and UndefinedBehaviorSanitizer, with clang++-19.
#
#   scripts/fuzz.sh                        every target, 60 s each
#   scripts/fuzz.sh jinja 600              one of answer, config, jinja, request, safetensors, tokenizer
#   scripts/fuzz.sh all 10 -seed=1         what follows goes to libFuzzer
#
# A run begins with the seeds (tests/fuzz/seeds.py) and with what earlier runs found worth keeping in
# build/fuzz/run/TARGET/corpus. An input that breaks a target is written to build/fuzz/run/TARGET/broken-*; it fails the
# script, and `build/fuzz/TARGET_fuzz FILE` shows it again. Once mended, it belongs into tests/fuzz/seeds/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."
targets=(answer config jinja request safetensors tokenizer)
target=${1:-all} seconds=${2:-60}
shift "$(($# < 2 ? $# : 2))"
[ "$target" = all ] || case " ${targets[*]} " in
  *" $target "*) targets=("$target") ;;
  *) echo "fuzz: no target is called $target; there are all, ${targets[*]}" >&2; exit 2 ;;
esac

for tool in clang++-19 cmake ninja python3; do
  command -v "$tool" >/dev/null || { echo "fuzz: $tool is missing; scripts/setup.sh --test installs it" >&2; exit 1; }
done
cmake --preset fuzz >/dev/null
ninja -C build/fuzz -j"$(nproc)" --quiet $(printf '%s_fuzz ' "${targets[@]}")
python3 tests/fuzz/seeds.py build/fuzz/run >/dev/null

# Reports name functions by addr2line of binutils, which is there without another package of LLVM.
export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:external_symbolizer_path=$(command -v addr2line)"
export UBSAN_OPTIONS="print_stacktrace=1:external_symbolizer_path=$(command -v addr2line)"

failed=0
for name in "${targets[@]}"; do
  run=build/fuzz/run/$name
  mkdir -p "$run/corpus"
  # 25 s for one input is a hang: the slowest takes well below one.
  if "build/fuzz/${name}_fuzz" -max_total_time="$seconds" -timeout=25 -max_len=8192 -print_funcs=0 \
      -dict="$run/words.dict" -artifact_prefix="$run/broken-" "$@" "$run/corpus" "$run/seeds" >"$run/log" 2>&1; then
    awk -v name="$name" '/ cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") cov = $(i + 1); if ($i == "corp:") corp = $(i + 1) } }
      /^Done / { runs = $2; seconds = $5 }
      END { printf "fuzz: %-11s %9d inputs in %d s, %d edges covered, %s kept, nothing broke\n", name, runs, seconds, cov, corp }' "$run/log"
  else
    failed=1
    echo "fuzz: $name broke, $run/log:" >&2
    grep -v -E '^#[0-9]+\s' "$run/log" | grep -m1 -A40 -E 'ERROR|runtime error' >&2 || tail -20 "$run/log" >&2
    ls "$run"/broken-* >&2 || true
  fi
done
exit "$failed"
