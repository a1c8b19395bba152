#!/usr/bin/env bash
# Makes a folder that runs on another x86-64 Linux host: the program, the CUDA backend if it is built, the
# libraries that are not the system's own, the bundled model and the gates.
#
#   scripts/bundle.sh [FOLDER]     default build/bundle; uses build/release and, if there, build/cuda
#
# A bundle of more than 32 MiB is refused: it must travel.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/bundle}
release=${TANDEM_RELEASE_DIR:-build/release}
cuda=${TANDEM_CUDA_DIR:-build/cuda}

rm -rf "$out"
mkdir -p "$out/lib" "$out/models" "$out/gates"
install -s -m 755 "$release/tandem" "$out/tandem"
cp -r models/tandem-tiny "$out/models/"
cp -r gates/fixtures gates/*.sh gates/*.py "$out/gates/"
install -D -m 644 tools/plot_timeline.py "$out/tools/plot_timeline.py"
for file in libtandem_cuda.so libtandem_trace.so tandem_cuda_tests tandem_cuda_rank_tests cuda_operators_bench block_bench delta_cuda_bench peer_bench; do
  [ -f "$cuda/$file" ] && install -s -m 755 "$cuda/$file" "$out/$file"
done

# glibc is the host's; everything else that Debian's own libraries bring travels along. CUDA's libraries
# are the GPU host's.
for program in "$out/tandem" "$out"/*.so "$out"/*_tests; do
  [ -f "$program" ] || continue
  ldd "$program" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so|libcu|libnccl|libtandem_cuda' || true
done | sort -u | while read -r library; do
  cp -L "$library" "$out/lib/"
done
bytes=$(find "$out" -type f -printf '%s\n' | awk '{sum += $1} END {print sum}')
echo "bundle: $(awk "BEGIN {printf \"%.1f\", $bytes / 1048576}") MiB in $out"
if [ "$bytes" -gt $((32 * 1048576)) ]; then
  echo "bundle: at most 32 MiB may travel; the largest files are" >&2
  find "$out" -type f -printf '%s %p\n' | sort -rn | head -n 5 >&2
  exit 1
fi
