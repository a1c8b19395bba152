#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

// The upper half of a float32. Same bits as __nv_bfloat16 and torch.bfloat16.
struct bf16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(bf16, bf16) = default;  // of the bits: NaN equals itself, +0 differs from -0
};

constexpr float to_float(bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

// Nearest even; NaN stays NaN (quiet), overflow becomes infinity.
constexpr bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// bf(x) of the specification: the value that x has once it went through bf16.
constexpr float round_bf16(float x) { return to_float(to_bf16(x)); }

}  // namespace tandem
