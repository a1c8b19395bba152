#include "model/fabricate_values.h"

#include <bit>

namespace tandem::model {
namespace {

// Of the sum of four uniform 16-bit numbers: 65536 * sqrt(4 / 12), rounded.
constexpr std::int64_t kSumDeviation = 37837;

// value * 2^-kFixedBits with `kept` significant bits; the exponent range of float32 is never left.
struct Rounded {
  std::uint32_t sign;
  std::uint32_t exponent;  // biased
  std::uint64_t fraction;  // kept - 1 bits, without the leading one
};

Rounded round_fixed(std::int64_t value, int kept) {
  const std::uint32_t sign = value < 0 ? 1 : 0;
  std::uint64_t magnitude = sign ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  int exponent = 63 - std::countl_zero(magnitude);
  if (exponent >= kept) {
    const int dropped = exponent - kept + 1;
    const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    const std::uint64_t rest = magnitude & ((std::uint64_t{1} << dropped) - 1);
    magnitude >>= dropped;
    if (rest > half || (rest == half && (magnitude & 1))) ++magnitude;
    if (magnitude >> kept) {
      magnitude >>= 1;
      ++exponent;
    }
  } else {
    magnitude <<= kept - 1 - exponent;
  }
  return {sign, static_cast<std::uint32_t>(exponent - kFixedBits + 127),
          magnitude & ((std::uint64_t{1} << (kept - 1)) - 1)};
}

std::int64_t draw(std::uint64_t bits) {
  std::int64_t sum = -2 * 65535;
  for (int i = 0; i < 4; ++i) sum += static_cast<std::int64_t>(bits >> (16 * i) & 0xffff);
  return sum;
}

std::int64_t scaled(const Bell& bell, std::int64_t drawn) { return bell.mean + drawn * bell.deviation / kSumDeviation; }

}  // namespace

bf16 fixed_to_bf16(std::int64_t value) {
  if (value == 0) return {};
  const Rounded r = round_fixed(value, 8);
  return {static_cast<std::uint16_t>(r.sign << 15 | r.exponent << 7 | r.fraction)};
}

float fixed_to_float(std::int64_t value) {
  if (value == 0) return 0.0f;
  const Rounded r = round_fixed(value, 24);
  return std::bit_cast<float>(r.sign << 31 | r.exponent << 23 | static_cast<std::uint32_t>(r.fraction));
}

std::int64_t fixed_inverse_root(std::int64_t n) {
  // floor(sqrt(2^62 / n)), bit by bit.
  const std::uint64_t square = (std::uint64_t{1} << (2 * kFixedBits)) / static_cast<std::uint64_t>(n);
  std::uint64_t root = 0;
  for (int bit = kFixedBits; bit >= 0; --bit) {
    const std::uint64_t candidate = root | std::uint64_t{1} << bit;
    if (candidate * candidate <= square) root = candidate;
  }
  return static_cast<std::int64_t>(root);
}

std::uint64_t mixed_bits(std::uint64_t key, std::uint64_t counter) {
  // A counter through a bijective mixer (the finaliser of splitmix64): any element without the ones before.
  std::uint64_t x = key + (counter + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

std::uint64_t tensor_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t key = mixed_bits(seed, 0);
  for (const char c : name) key = mixed_bits(key, static_cast<unsigned char>(c));
  return key;
}

BellTable::BellTable(const Bell& bell) {
  // Pairs of opposite draws: the table's mean is exactly the bell's.
  for (std::size_t i = 0; i < values_.size(); i += 2) {
    const std::int64_t drawn = draw(mixed_bits(0x7461626c65, i));
    values_[i] = fixed_to_bf16(scaled(bell, drawn));
    values_[i + 1] = fixed_to_bf16(scaled(bell, -drawn));
  }
}

void BellTable::fill(std::uint64_t key, std::int64_t first, std::span<bf16> out) const {
  auto counter = static_cast<std::uint64_t>(first) / 4;
  std::size_t i = 0;
  for (; i + 4 <= out.size(); i += 4) {
    const std::uint64_t bits = mixed_bits(key, counter++);
    out[i] = values_[bits & 0xfff];
    out[i + 1] = values_[bits >> 16 & 0xfff];
    out[i + 2] = values_[bits >> 32 & 0xfff];
    out[i + 3] = values_[bits >> 48 & 0xfff];
  }
  if (i == out.size()) return;
  std::uint64_t bits = mixed_bits(key, counter);
  for (; i < out.size(); ++i, bits >>= 16) out[i] = values_[bits & 0xfff];
}

float bell_float(const Bell& bell, std::uint64_t key, std::int64_t element) {
  return fixed_to_float(scaled(bell, draw(mixed_bits(key, static_cast<std::uint64_t>(element)))));
}

}  // namespace tandem::model
