#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::ops::cuda {

// ErrorKind::Device with the call's name and CUDA's own words; ok for cudaSuccess.
[[nodiscard]] inline Result<void> checked(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return {};
  return fail(ErrorKind::Device, std::string(what) + ": " + cudaGetErrorName(status) + " (" +
                                     cudaGetErrorString(status) + ")");
}

// After a kernel launch: the launch's own error, named for the operator.
[[nodiscard]] inline Result<void> launched(std::string_view what) { return checked(cudaGetLastError(), what); }

}  // namespace tandem::ops::cuda
