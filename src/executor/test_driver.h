#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "executor/start_executor.h"
#include "model/fabricate.h"
#include "ops/step_view.h"

// What the tests of this room share: a small made-up model, and a controller that drives an executor
// request by request without a scheduler.
namespace tandem::executor::testing {

// Small, with both kinds of layer; divides over 1, 2 and 4 ranks.
inline model::Geometry small_geometry() {
  return {.name = "small",
          .hidden = 96,
          .intermediate = 128,
          .query_heads = 4,
          .kv_heads = 2,
          .key_heads = 4,
          .value_heads = 8,
          .vocab = 640,
          .max_context = 1024,
          .tied = true,
          .layers = model::layer_pattern(4, 2)};
}

// A checkpoint of that geometry, made once per process.
inline const std::filesystem::path& small_model() {
  static const std::filesystem::path folder = [] {
    const auto made = std::filesystem::temp_directory_path() /
                      ("tandem_executor_test_" + std::to_string(std::random_device{}()));
    const auto written = model::fabricate({.geometry = small_geometry(), .folder = made});
    if (!written) ADD_FAILURE() << written.error().message;
    return made;
  }();
  static const struct Cleaner {
    ~Cleaner() { std::filesystem::remove_all(folder); }
  } cleaner;
  return folder;
}

inline ExecutorOptions small_options(int world = 1) {
  ExecutorOptions options;
  options.model = small_model();
  options.devices.ops = rank::OpsKind::Reference;
  options.devices.ordinals.clear();
  for (int r = 0; r < world; ++r) options.devices.ordinals.push_back(r);
  options.max_requests = 4;
  options.max_step_tokens = 256;
  options.max_mixed_tokens = 256;
  options.kv_bytes = std::int64_t{8} << 20;
  options.reserve_bytes = std::int64_t{8} << 20;
  return options;
}

inline std::vector<TokenId> random_prompt(int tokens, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids(static_cast<std::size_t>(tokens));
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % 640);
  return ids;
}

// One token as its request got it.
struct Got {
  TokenId id = -1;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;
  friend bool operator==(const Got&, const Got&) = default;  // of the bits, as nothing is NaN
};

inline Got got(const ops::TokenChoice& choice) {
  EXPECT_EQ(choice.non_finite, 0);
  Got token{choice.id, choice.logprob, {}};
  for (std::int32_t i = 0; i < choice.top_count; ++i) {
    token.top.emplace_back(choice.top_ids[static_cast<std::size_t>(i)],
                           choice.top_logprobs[static_cast<std::size_t>(i)]);
  }
  return token;
}

struct Asked {
  std::vector<TokenId> prompt;
  ops::SamplingParams sampling{.temperature = 0.0f};
  std::int32_t top_logprobs = 5;
  std::int32_t prompt_logprobs = -1;
  std::vector<TokenId> forced = {};  // score these instead of sampling, one a step
};

// A controller with one step in flight: knows slots, pages and positions, and makes the rows.
class Driver {
 public:
  explicit Driver(Executor& executor) : executor_(executor) {
    for (int p = 0; p < executor.capacity().pages; ++p) free_pages_.insert(p);
    for (int s = 0; s < executor.capacity().slots; ++s) free_slots_.insert(s);
  }

  // Takes the lowest free slot, or this one.
  RequestId add(Asked asked, int slot = -1) {
    Live live{.asked = std::move(asked)};
    live.slot = slot >= 0 ? slot : *free_slots_.begin();
    EXPECT_EQ(free_slots_.erase(live.slot), 1u);
    const RequestId id{++last_id_};
    live_.emplace(id, std::move(live));
    return id;
  }

  // The request's next row: up to `tokens` of its prompt, then one decoded token.
  rank::Row row(RequestId id, int tokens = 1 << 20) {
    Live& live = live_.at(id);
    const int prompt = static_cast<int>(live.asked.prompt.size());
    rank::Row row{.request = id, .slot = SlotId{live.slot}, .base_pos = live.pos};
    if (live.pos < prompt) {
      row.kind = ops::RowKind::Prefill;
      row.tokens = std::min(tokens, prompt - live.pos);
      row.ids.assign(live.asked.prompt.begin() + live.pos, live.asked.prompt.begin() + live.pos + row.tokens);
      row.samples = live.pos + row.tokens == prompt;
      row.prompt_next = row.samples ? -1 : live.asked.prompt[static_cast<std::size_t>(live.pos + row.tokens)];
      row.prompt_logprobs = live.asked.prompt_logprobs;
    } else if (!live.asked.forced.empty()) {
      row.ids = {live.asked.forced.at(static_cast<std::size_t>(live.sent) - 1)};
    }
    if (live.pos == 0) row.sampling = live.asked.sampling;
    row.generated = live.sent;
    if (row.samples) {
      row.top_logprobs = live.asked.top_logprobs;
      if (!live.asked.forced.empty()) row.score = live.asked.forced.at(static_cast<std::size_t>(live.sent));
      ++live.sent;
    }
    live.pos += row.tokens;
    while (static_cast<int>(live.pages.size()) * ops::kPageTokens < live.pos) {
      const int page = *free_pages_.begin();
      free_pages_.erase(free_pages_.begin());
      live.pages.push_back(page);
      row.new_pages.push_back(PageId{page});
    }
    return row;
  }

  // Runs a step and hands the tokens out. The order of rows is the caller's: decode rows first.
  void run(std::vector<rank::Row> rows, int padding = 0) {
    auto sent = executor_.submit_step({.rows = std::move(rows), .padding_rows = padding});
    ASSERT_TRUE(sent.has_value()) << sent.error().message;
    auto result = executor_.wait_step();
    ASSERT_TRUE(result.has_value()) << result.error().message;
    take(*result);
  }

  // Hands out the tokens of a step's result.
  void take(const rank::StepResult& result) {
    for (const rank::Artifact& artifact : result.artifacts) {
      Live& live = live_.at(artifact.request);
      for (const ops::TokenChoice& choice : artifact.prompt_logprobs) live.prompt_got.push_back(got(choice));
      if (artifact.choice) live.tokens.push_back(got(*artifact.choice));
    }
  }

  // Steps of this request alone until it has `count` tokens.
  void finish(RequestId id, std::size_t count, int chunk = 1 << 20) {
    while (tokens(id).size() < count) {
      const std::size_t before = tokens(id).size();
      const int pos = live_.at(id).pos;
      run({row(id, chunk)});
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_TRUE(tokens(id).size() > before || live_.at(id).pos > pos);
    }
  }

  void drop(RequestId id) {
    const rank::Drop drop{id, rank::Expectation::MustExist};
    const auto dropped = executor_.drop({&drop, 1});
    ASSERT_TRUE(dropped.has_value()) << dropped.error().message;
    const Live& live = live_.at(id);
    free_pages_.insert(live.pages.begin(), live.pages.end());
    free_slots_.insert(live.slot);
    live_.erase(id);
  }

  // Alone, from first to last: what the request gives on this executor now.
  std::vector<Got> solo(const Asked& asked, std::size_t count, int chunk = 1 << 20) {
    const RequestId id = add(asked);
    finish(id, count, chunk);
    std::vector<Got> all = tokens(id);
    drop(id);
    return all;
  }

  const std::vector<Got>& tokens(RequestId id) const { return live_.at(id).tokens; }
  const std::vector<Got>& prompt_got(RequestId id) const { return live_.at(id).prompt_got; }
  bool decodes(RequestId id) const {  // its next row
    const Live& live = live_.at(id);
    return live.pos >= static_cast<std::int32_t>(live.asked.prompt.size());
  }
  int free_slots() const { return static_cast<int>(free_slots_.size()); }
  int slot(RequestId id) const { return live_.at(id).slot; }
  const std::vector<int>& pages(RequestId id) const { return live_.at(id).pages; }

 private:
  struct Live {
    Asked asked;
    int slot = -1;
    std::vector<int> pages = {};
    std::int32_t pos = 0;   // tokens sent
    std::int32_t sent = 0;  // tokens asked for
    std::vector<Got> tokens = {};
    std::vector<Got> prompt_got = {};
  };

  Executor& executor_;
  std::map<RequestId, Live> live_;
  std::set<int> free_pages_, free_slots_;
  std::uint64_t last_id_ = 0;
};

}  // namespace tandem::executor::testing
