#pragma once

#include <cstdint>

#include "ops/exact_math.h"

// The sampler's noise: a pure function of (seed, position, token id), the same bits on every device.
// Never of step, slot, row or rank, so a request's tokens do not depend on its company.

namespace tandem::ops {

struct Philox4 {
  std::uint32_t word[4];
};

// Philox4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3").
TANDEM_EVERYWHERE Philox4 philox4x32_10(Philox4 counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Standard Gumbel noise -ln(-ln u) from 32 random bits, u = (bits + 1/2) / 2^32. Near u = 1, where the
// winners come from, 1 - u keeps its full precision.
TANDEM_EVERYWHERE float gumbel_of(std::uint32_t bits) {
  constexpr float kUnit = 1.0f / 4294967296.0f;
  const std::uint32_t rest = ~bits;  // 1 - u = (rest + 1/2) / 2^32
  const float exponential =
      rest < 0x40000000u
          ? -exact::log_one_minus(exact::mul(exact::add(static_cast<float>(rest), 0.5f), kUnit))
          : -exact::log_positive(exact::mul(exact::add(static_cast<float>(bits), 0.5f), kUnit));
  return -exact::log_positive(exponential);
}

// The four words for the ids 4 * group .. 4 * group + 3.
TANDEM_EVERYWHERE Philox4 noise_words(std::uint64_t seed, std::int64_t position, std::uint32_t group) {
  const auto p = static_cast<std::uint64_t>(position);
  return philox4x32_10({{group, static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(p >> 32), 0u}},
                       static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

TANDEM_EVERYWHERE float gumbel_noise(std::uint64_t seed, std::int64_t position, std::int32_t token) {
  const auto id = static_cast<std::uint32_t>(token);
  return gumbel_of(noise_words(seed, position, id >> 2).word[id & 3u]);
}

}  // namespace tandem::ops
