#define TANDEM_LINEAR linear_baseline
#include "ops/cpu/linear_float_impl.h"

namespace tandem::ops::cpu {

LinearKernel linear_kernel(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::Amx:
      return {.run = linear_amx, .input = LinearInput::Bf16Tiles};
    case CpuIsa::Avx512Bf16:
      return {.run = linear_avx512bf16, .input = LinearInput::Bf16Rows};
    case CpuIsa::Avx512:
      return {.run = linear_avx512, .input = LinearInput::FloatRows};
    case CpuIsa::Avx2:
      return {.run = linear_avx2, .input = LinearInput::FloatRows};
    case CpuIsa::Scalar:
      break;
  }
  return {.run = linear_baseline, .input = LinearInput::FloatRows};
}

}  // namespace tandem::ops::cpu
