#pragma once

#include <array>
#include <cstdint>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/bf16.h"

namespace tandem::model {

// Deterministic tensor values from integers alone: no floating-point operation decides a bit, so that two
// machines cannot disagree. Numbers are fixed-point with kFixedBits bits after the point.

inline constexpr int kFixedBits = 31;
inline constexpr std::int64_t kFixedOne = std::int64_t{1} << kFixedBits;

// value * 2^-kFixedBits, rounded to nearest even.
[[nodiscard]] bf16 fixed_to_bf16(std::int64_t value);
[[nodiscard]] float fixed_to_float(std::int64_t value);

// 2^kFixedBits / sqrt(n), rounded down; n >= 1.
[[nodiscard]] std::int64_t fixed_inverse_root(std::int64_t n);

// 64 well mixed bits for every pair.
[[nodiscard]] std::uint64_t mixed_bits(std::uint64_t key, std::uint64_t counter);
// Of a tensor's name, so that values do not depend on the order or number of other tensors.
[[nodiscard]] std::uint64_t tensor_key(std::uint64_t seed, std::string_view name);

// A bell-shaped distribution (sums of four uniform numbers) with this mean and standard deviation.
struct Bell {
  std::int64_t mean = 0;       // fixed-point
  std::int64_t deviation = 0;  // fixed-point
};

// bf16 values of one tensor, drawn from a table of 4096 quantiles: fast enough for any disk.
class BellTable {
 public:
  explicit BellTable(const Bell& bell);
  // out[i] = value of element `first` + i; `first` is a multiple of 4.
  void fill(std::uint64_t key, std::int64_t first, std::span<bf16> out) const;

 private:
  std::array<bf16, 4096> values_;
};

// float32 values with all their bits, one at a time.
[[nodiscard]] float bell_float(const Bell& bell, std::uint64_t key, std::int64_t element);

}  // namespace tandem::model
