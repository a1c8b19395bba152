#pragma once

#include <string>

#include "base/result.h"
#include "ops/cuda/gemm_tune.h"

namespace tandem::rank {

// ops::cuda::tune_gemms through libtandem_cuda.so. Thread: any. Errors: as check_devices, and tune_gemms.
[[nodiscard]] Result<std::string> tune_cuda(const ops::cuda::TuneOptions& options);

}  // namespace tandem::rank
