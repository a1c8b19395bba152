#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "comm/group.h"
#include "ops/backend.h"
#include "ops/cuda/gemm_tune.h"
#include "ops/cuda/peer_group.h"

// What libtandem_cuda.so exports; the rank's device factory looks the names up after dlopen.
// Both sides are built together from one tree, so C++ types may cross.

// Binds logical device `ordinal` to the calling thread and makes its backend in *backend; *note says which algorithm
// table it took, for the log. On failure returns false with *error set. Thread: the rank's.
extern "C" bool tandem_cuda_make_backend(int ordinal, std::unique_ptr<tandem::ops::Backend>* backend, std::string* note,
                                         tandem::Error* error);

// ops::cuda::tune_gemms; false with *error set where it fails. Thread: any; it is bound to the device.
extern "C" bool tandem_cuda_tune(const tandem::ops::cuda::TuneOptions* options, std::string* table, tandem::Error* error);

// Number of visible devices (after CUDA_VISIBLE_DEVICES), or -1 with *error set when there is no driver.
extern "C" int tandem_cuda_device_count(tandem::Error* error);

// ops::cuda::plan_peers, as a check before anything is opened; false with *error set where it refuses. Thread: any.
extern "C" bool tandem_cuda_check_peers(const tandem::ops::cuda::PeerGroupOptions* options, tandem::Error* error);

// ops::cuda::make_peer_group. Thread: the controller's.
extern "C" bool tandem_cuda_make_group(const tandem::ops::cuda::PeerGroupOptions* options,
                                       std::shared_ptr<tandem::comm::Group>* group, tandem::Error* error);

namespace tandem::ops::cuda {
inline constexpr char kMakeBackend[] = "tandem_cuda_make_backend";
inline constexpr char kDeviceCount[] = "tandem_cuda_device_count";
inline constexpr char kCheckPeers[] = "tandem_cuda_check_peers";
inline constexpr char kMakeGroup[] = "tandem_cuda_make_group";
inline constexpr char kTune[] = "tandem_cuda_tune";
using MakeBackend = decltype(&tandem_cuda_make_backend);
using DeviceCount = decltype(&tandem_cuda_device_count);
using CheckPeers = decltype(&tandem_cuda_check_peers);
using MakeGroup = decltype(&tandem_cuda_make_group);
using Tune = decltype(&tandem_cuda_tune);
}  // namespace tandem::ops::cuda
