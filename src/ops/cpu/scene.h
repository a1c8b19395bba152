#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "ops/cpu/backend.h"
#include "ops/reference/backend.h"
#include "ops/test_tools.h"

// What the tests of the CPU operators share: a fixture for every instruction set of this machine, the
// reference beside it, and scenes of requests of random age. Included by tests only.

namespace tandem::ops::testing {

inline constexpr StepLimits kLimits{.max_tokens = 700,
                                    .max_rows = 16,
                                    .max_context = 700,
                                    .max_logit_rows = 16,
                                    .slots = 8,
                                    .pages = 90,
                                    .vocab = 1000};

inline std::vector<CpuIsa> instruction_sets() {
  std::vector<CpuIsa> sets;
  for (const CpuIsa isa : {CpuIsa::Scalar, CpuIsa::Avx2, CpuIsa::Avx512, CpuIsa::Avx512Bf16, CpuIsa::Amx}) {
    if (isa <= detected_cpu_isa()) sets.push_back(isa);
  }
  return sets;
}

class OnEveryIsa : public ::testing::TestWithParam<CpuIsa> {
 protected:
  std::unique_ptr<Backend> fast(int threads = 2) {
    auto backend = make_cpu_backend({.threads = threads, .isa = GetParam()});
    EXPECT_TRUE(backend->reserve(kLimits));
    return backend;
  }
  std::unique_ptr<Backend> plain() {
    auto backend = make_reference_backend();
    EXPECT_TRUE(backend->reserve(kLimits));
    return backend;
  }
};

// Largest distance in units of the last place; values below `floor` count as `floor`.
inline float distance(const std::vector<bf16>& a, const std::vector<bf16>& b, float floor) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, testing::ulps(a[i], b[i], floor));
  return most;
}

inline float distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0, largest = 0;
  for (const float x : a) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float d = std::abs(a[i] - b[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return largest > 0 ? most / largest : most;
}

// A step of decode rows and prefill rows over requests of random age, with pages and slots in random order.
struct Scene {
  std::vector<Request> requests;
  int decode_rows = 0;
  std::vector<int> tokens;  // of each request's row

  int total() const {
    int sum = 0;
    for (const int n : tokens) sum += n;
    return sum;
  }
  // Rows in order; `order[i]` says which request row i serves. padding: extra decode rows on the trash slot.
  StepMaker step(const std::vector<int>& order, int padding = 0) const {
    StepMaker maker;
    const auto add = [&](bool decode) {
      for (const int r : order) {
        if ((r < decode_rows) != decode) continue;
        Request request = requests[r];
        maker.add(request, decode ? RowKind::Decode : RowKind::Prefill, tokens[r]);
      }
    };
    add(true);
    for (int i = 0; i < padding; ++i) {
      Request trash{SlotId{kLimits.slots}, {PageId{kLimits.pages}}, i % 3};
      maker.add(trash, RowKind::Decode, 1);
    }
    add(false);
    return maker;
  }
  std::vector<int> in_order() const {
    std::vector<int> order(requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    return order;
  }
};

inline Scene make_scene(Random& random, int decode_rows, std::vector<int> prefill_tokens, int longest = 300) {
  Scene scene;
  scene.decode_rows = decode_rows;
  const auto slots = random.shuffled(kLimits.slots);
  const auto pages = random.shuffled(kLimits.pages);
  std::size_t next_page = 0;
  const int count = decode_rows + static_cast<int>(prefill_tokens.size());
  for (int r = 0; r < count; ++r) {
    const bool decode = r < decode_rows;
    scene.tokens.push_back(decode ? 1 : prefill_tokens[r - decode_rows]);
    Request request{SlotId{slots[r]}, {}, 0};
    // Some prefill rows start a request; ages stand at and around page ends as well.
    if (decode || random.between(0, 2) > 0) {
      request.length = random.between(0, 1) ? random.between(1, longest)
                                            : 64 * random.between(1, 3) + random.between(-1, 1);
    }
    const int needed = (request.length + scene.tokens.back() + kPageTokens - 1) / kPageTokens;
    for (int i = 0; i < needed; ++i) request.pages.push_back(PageId{pages.at(next_page++)});
    scene.requests.push_back(request);
  }
  return scene;
}

// The history that a scene's requests already have.
inline void fill_history(Random& random, const Scene& scene, KvPool& pool, int kv_heads) {
  for (const Request& request : scene.requests) {
    for (int p = 0; p < request.length; ++p) {
      for (int part = 0; part < 2; ++part) {
        for (int h = 0; h < kv_heads; ++h) {
          const auto values = random.bf16s(kHeadDim);
          std::copy(values.begin(), values.end(),
                    pool.at(request.pages[p / kPageTokens], part, h, p % kPageTokens));
        }
      }
    }
  }
}
inline void fill_history(Random& random, const Scene& scene, StatePool& pool, DeltaShape shape) {
  const DeltaState view = pool.view();
  for (const Request& request : scene.requests) {
    if (request.length == 0) continue;  // stays NaN: base_pos 0 must not read it
    const auto conv = random.bf16s(shape.channels() * kConvWindow);
    const auto state = random.floats(std::int64_t{shape.value_heads} * 128 * 128, 0.1f);
    std::copy(conv.begin(), conv.end(), view.conv + request.slot.value * view.conv_stride);
    std::copy(state.begin(), state.end(), view.state + request.slot.value * view.state_stride);
  }
}

// Rows of a matrix of the in-order step, put where `order` puts their requests; padding rows are NaN.
template <class T>
std::vector<T> reorder(const std::vector<T>& rows, const Scene& scene, const std::vector<int>& order,
                       int padding, std::int64_t width, T filler) {
  std::vector<int> begin(scene.tokens.size() + 1, 0);
  for (std::size_t r = 0; r < scene.tokens.size(); ++r) begin[r + 1] = begin[r] + scene.tokens[r];
  std::vector<T> out;
  const auto add = [&](bool decode) {
    for (const int r : order) {
      if ((r < scene.decode_rows) != decode) continue;
      out.insert(out.end(), rows.begin() + begin[r] * width, rows.begin() + begin[r + 1] * width);
    }
  };
  add(true);
  out.insert(out.end(), padding * width, filler);
  add(false);
  return out;
}

template <class T>
std::vector<T> without_padding(const std::vector<T>& rows, const Scene& scene, int padding,
                               std::int64_t width) {
  std::vector<T> out(rows.begin(), rows.begin() + scene.decode_rows * width);
  out.insert(out.end(), rows.begin() + (scene.decode_rows + padding) * width, rows.end());
  return out;
}

// Order with the decode rows shuffled among themselves, and the prefill rows.
inline std::vector<int> shuffled_order(Random& random, const Scene& scene) {
  return random.shuffled(static_cast<int>(scene.requests.size()));
}

// Runs a prompt of `tokens` tokens in pieces that end at `ends`.
template <class RunPiece>
void in_pieces(Request request, const std::vector<int>& ends, const RunPiece& run) {
  int begin = 0;
  for (const int end : ends) {
    StepMaker maker;
    maker.add(request, RowKind::Prefill, end - begin);
    run(maker, begin, end - begin);
    begin = end;
  }
}

}  // namespace tandem::ops::testing
