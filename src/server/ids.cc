#include "server/ids.h"

#include <random>

namespace tandem::server {

std::uint64_t random_number() {
  // One generator a thread: no lock, and threads do not share a seed.
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return generator();
}

std::string new_id(std::string_view prefix) {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::string out(prefix);
  for (int word = 0; word < 2; ++word) {
    std::uint64_t bits = random_number();
    for (int i = 0; i < 12; ++i, bits /= 36) out += kLetters[bits % 36];
  }
  return out;
}

}  // namespace tandem::server
