#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {

const Kernels& kernels(CpuIsa isa) {
  static const Kernels amx = [] {
    Kernels with_tiles = kKernelsAvx512Bf16;
    with_tiles.attend_prefill = attend_prefill_amx;
    with_tiles.delta_prompt = delta_chunks_amx;
    return with_tiles;
  }();
  if (isa >= CpuIsa::Amx) return amx;
  if (isa >= CpuIsa::Avx512Bf16) return kKernelsAvx512Bf16;
  if (isa >= CpuIsa::Avx512) return kKernelsAvx512;
  if (isa >= CpuIsa::Avx2) return kKernelsAvx2;
  return kKernelsBaseline;
}

}  // namespace tandem::ops::cpu
