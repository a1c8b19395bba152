#include "ops/cpu/kernels.h"

namespace tandem::ops::cpu {

const Kernels& kernels(CpuIsa isa) {
  if (isa >= CpuIsa::Avx512) return kKernelsAvx512;
  if (isa >= CpuIsa::Avx2) return kKernelsAvx2;
  return kKernelsBaseline;
}

}  // namespace tandem::ops::cpu
