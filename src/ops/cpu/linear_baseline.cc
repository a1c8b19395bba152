#define TANDEM_LINEAR linear_baseline
#include "ops/cpu/linear_float_impl.h"

namespace tandem::ops::cpu {

LinearKernel linear_kernel(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::Amx:
      return {.run = linear_amx, .takes_floats = false};
    case CpuIsa::Avx512Bf16:
      return {.run = linear_avx512bf16, .takes_floats = false};
    case CpuIsa::Avx512:
      return {.run = linear_avx512, .takes_floats = true};
    case CpuIsa::Avx2:
      return {.run = linear_avx2, .takes_floats = true};
    case CpuIsa::Scalar:
      break;
  }
  return {.run = linear_baseline, .takes_floats = true};
}

}  // namespace tandem::ops::cpu
