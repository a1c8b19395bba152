#include "ops/cuda/entry.h"

#include <cuda_runtime_api.h>

#include "ops/cuda/cuda_backend.h"

extern "C" bool tandem_cuda_make_backend(int ordinal, std::unique_ptr<tandem::ops::Backend>* backend, std::string* note,
                                         tandem::Error* error) {
  auto made = tandem::ops::cuda::CudaBackend::open(ordinal);
  if (!made) {
    *error = made.error();
    return false;
  }
  *note = (*made)->gemm().note();
  *backend = std::move(*made);
  return true;
}

extern "C" bool tandem_cuda_tune(const tandem::ops::cuda::TuneOptions* options, std::string* table, tandem::Error* error) {
  auto made = tandem::ops::cuda::tune_gemms(*options);
  if (!made) {
    *error = made.error();
    return false;
  }
  *table = std::move(*made);
  return true;
}

extern "C" int tandem_cuda_device_count(tandem::Error* error) {
  int count = 0;
  const auto counted = tandem::ops::cuda::checked(cudaGetDeviceCount(&count), "counting CUDA devices");
  if (counted) return count;
  *error = {tandem::ErrorKind::Unsupported, "[device] no CUDA device can be used: " + counted.error().message +
                                                "; use --device cpu, or install the NVIDIA driver"};
  return -1;
}

extern "C" bool tandem_cuda_check_peers(const tandem::ops::cuda::PeerGroupOptions* options, tandem::Error* error) {
  const auto plan = tandem::ops::cuda::plan_peers(*options);
  if (!plan) *error = plan.error();
  return plan.has_value();
}

extern "C" bool tandem_cuda_make_group(const tandem::ops::cuda::PeerGroupOptions* options,
                                       std::shared_ptr<tandem::comm::Group>* group, tandem::Error* error) {
  auto made = tandem::ops::cuda::make_peer_group(*options);
  if (!made) {
    *error = made.error();
    return false;
  }
  *group = std::move(*made);
  return true;
}
