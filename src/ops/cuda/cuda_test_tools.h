#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "comm/world_of_one.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/reference/backend.h"
#include "ops/test_tools.h"

// The CUDA backend and its oracle side by side, for tests.

namespace tandem::ops::cuda::testing {

using namespace ops::testing;

// Host values and their copy on the device.
template <class T>
class Mirror {
 public:
  Mirror(Backend& backend, std::vector<T> values) : host(std::move(values)), backend_(&backend) {
    device = static_cast<T*>(backend.allocate(host.size() * sizeof(T), MemoryUse::Scratch, "test").value());
    push();
  }
  void push() { EXPECT_TRUE(backend_->copy_to_device(device, host.data(), host.size() * sizeof(T))); }
  [[nodiscard]] std::vector<T> pull() const {
    std::vector<T> values(host.size());
    EXPECT_TRUE(backend_->copy_to_host(values.data(), device, values.size() * sizeof(T)));
    return values;
  }

  std::vector<T> host;
  T* device = nullptr;

 private:
  Backend* backend_;
};

inline std::vector<bf16> poison_bf16(std::int64_t n) { return std::vector<bf16>(static_cast<std::size_t>(n), bf16{0xffff}); }

// ||got - want|| / ||want||; NaN anywhere in `got` where `want` is a number gives infinity.
template <class T>
double relative_error(const std::vector<T>& got, const std::vector<T>& want) {
  double difference = 0, magnitude = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    double g, w;
    if constexpr (std::is_same_v<T, bf16>) {
      g = to_float(got[i]);
      w = to_float(want[i]);
    } else {
      g = got[i];
      w = want[i];
    }
    if (std::isnan(w) && std::isnan(g)) continue;
    if (std::isnan(w) != std::isnan(g)) return INFINITY;
    difference += (g - w) * (g - w);
    magnitude += w * w;
  }
  return std::sqrt(difference / std::max(magnitude, 1e-30));
}

// Both backends, reserved for the same limits.
struct Pair {
  explicit Pair(const StepLimits& limits) : limits(limits) {
    auto opened = CudaBackend::open(0);
    if (!opened) ADD_FAILURE() << opened.error().message;
    cuda = std::move(*opened);
    reference = make_reference_backend();
  }
  void reserve() {
    ASSERT_TRUE(reference->reserve(limits));
    const auto reserved = cuda->reserve(limits);
    ASSERT_TRUE(reserved) << reserved.error().message;
  }
  void begin(const StepView& step) {
    ASSERT_TRUE(reference->begin_step(step));
    const auto begun = cuda->begin_step(step);
    ASSERT_TRUE(begun) << begun.error().message;
  }

  StepLimits limits;
  std::unique_ptr<CudaBackend> cuda;
  std::unique_ptr<Backend> reference;
};

#define EXPECT_OK(expression)                                   \
  do {                                                          \
    const auto result_ = (expression);                          \
    EXPECT_TRUE(result_) << (result_ ? "" : result_.error().message); \
  } while (false)

}  // namespace tandem::ops::cuda::testing
