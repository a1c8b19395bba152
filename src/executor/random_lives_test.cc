#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string_view>

#include "executor/test_driver.h"

// Requests that come, prefill by chunks, decode, and leave at any moment, in steps of any order with any
// padding. Whatever runs beside it, a request gets the bits that it gets alone.
namespace tandem::executor {
namespace {

using testing::Asked;
using testing::Driver;
using testing::Got;
using testing::random_prompt;
using testing::small_options;

std::size_t hash(const std::byte* bytes, std::int64_t count) {
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count)});
}

// After every step, on every rank: slots and pages that the step did not name keep their bytes (R4.7).
class Untouched {
 public:
  // Before a step is sent: what it may write to.
  void expect(const std::vector<rank::Row>& rows, const Driver& driver) {
    const std::lock_guard lock(mutex_);
    named_slots_.clear();
    named_pages_.clear();
    for (const rank::Row& row : rows) {
      named_slots_.insert(row.slot.value);
      // The pages that its tokens fall into.
      const std::vector<int>& pages = driver.pages(row.request);
      for (int at = row.base_pos / 64; at <= (row.base_pos + row.tokens - 1) / 64; ++at)
        named_pages_.insert(pages[static_cast<std::size_t>(at)]);
    }
  }
  // A drop rewrites what it frees.
  void forget(int slot, const std::vector<int>& pages) {
    const std::lock_guard lock(mutex_);
    for (auto& [rank, before] : before_) {
      before.slots.erase(slot);
      for (const int page : pages) before.pages.erase(page);
    }
  }

  void look(const rank::StepTrace& trace) {
    const memory::Pools& pools = *trace.pools;
    Bytes now;
    for (int s = 0; s < pools.slots(); ++s) now.slots[s] = hash(pools.slot(SlotId{s}), pools.slot_bytes());
    for (int p = 0; p < pools.pages(); ++p) now.pages[p] = hash(pools.page(PageId{p}), pools.page_bytes());
    const std::lock_guard lock(mutex_);
    const Bytes& before = before_[trace.rank.value];
    for (const auto& [slot, bytes] : before.slots) {
      if (!named_slots_.contains(slot)) {
        EXPECT_EQ(now.slots[slot], bytes)
            << "slot " << slot << " rank " << trace.rank.value << " step " << trace.step;
      }
    }
    for (const auto& [page, bytes] : before.pages) {
      if (!named_pages_.contains(page)) {
        EXPECT_EQ(now.pages[page], bytes)
            << "page " << page << " rank " << trace.rank.value << " step " << trace.step;
      }
    }
    before_[trace.rank.value] = std::move(now);
  }

 private:
  struct Bytes {
    std::map<int, std::size_t> slots, pages;
  };
  std::mutex mutex_;
  std::set<int> named_slots_, named_pages_;
  std::map<int, Bytes> before_;  // by rank
};

Asked random_request(std::mt19937& random) {
  Asked asked{.prompt = random_prompt(static_cast<int>(1 + random() % 180), random())};
  asked.top_logprobs = static_cast<int>(random() % 6);
  if (random() % 3 == 0) {
    asked.sampling = {
        .temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .presence_penalty = 0.5f, .seed = random()};
  }
  return asked;
}

class RandomLives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, RandomLives, ::testing::Values(1, 2));

// proves R4.1, R4.5, R4.6, R4.7 and, in a world of one, P2a gates 1 and 2 with the reference operators
TEST_P(RandomLives, EveryRequestGetsTheBitsThatItGetsAloneAndStepsWriteOnlyWhatTheyName) {
  const int world = GetParam();
  const unsigned seed = 20;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Untouched untouched;
  ExecutorOptions options = small_options(world);
  options.nan_fill_freed = true;
  options.on_step = [&](const rank::StepTrace& trace) { untouched.look(trace); };
  auto executor = start_executor(options);
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  Driver driver(**executor);

  std::map<RequestId, Asked> live;
  std::map<RequestId, std::size_t> wanted;
  std::vector<std::pair<Asked, std::vector<Got>>> ended;
  int added = 0, in_both_kinds = 0;
  const auto drop = [&](RequestId id) {
    ended.emplace_back(live.at(id), driver.tokens(id));
    const int slot = driver.slot(id);
    const std::vector<int> pages = driver.pages(id);
    driver.drop(id);
    untouched.forget(slot, pages);
    live.erase(id);
  };
  while (added < 14 || !live.empty()) {
    while (added < 14 && driver.free_slots() > 0 && random() % 2 == 0) {
      Asked asked = random_request(random);
      const RequestId id = driver.add(asked);
      live.emplace(id, std::move(asked));
      wanted[id] = 1 + random() % 6;
      ++added;
    }
    if (live.empty()) continue;
    std::vector<RequestId> ids;
    for (const auto& [id, asked] : live)
      if (random() % 4 != 0) ids.push_back(id);
    if (ids.empty()) continue;
    std::shuffle(ids.begin(), ids.end(), random);
    std::stable_partition(ids.begin(), ids.end(), [&](RequestId id) { return driver.decodes(id); });
    const bool decodes = driver.decodes(ids.front());
    const bool both = decodes && !driver.decodes(ids.back());
    if (both && world > 1) std::erase_if(ids, [&](RequestId id) { return !driver.decodes(id); });
    in_both_kinds += both && world == 1 ? 1 : 0;
    std::vector<rank::Row> rows;
    for (const RequestId id : ids) rows.push_back(driver.row(id, 64));
    untouched.expect(rows, driver);
    const bool pads = world == 1 || decodes;
    ASSERT_NO_FATAL_FAILURE(driver.run(std::move(rows), pads ? static_cast<int>(random() % 3) : 0));
    for (const RequestId id : ids) {
      const bool cancelled = random() % 20 == 0;  // at any stage
      if (cancelled || driver.tokens(id).size() >= wanted[id]) {
        ASSERT_NO_FATAL_FAILURE(drop(id));
      }
    }
  }
  EXPECT_TRUE((*executor)->shutdown().has_value());
  if (world == 1) {
    EXPECT_GE(in_both_kinds, 3);
  }

  for (const auto& [asked, tokens] : ended) {
    if (tokens.empty()) continue;
    auto fresh = start_executor(small_options(world));
    ASSERT_TRUE(fresh.has_value());
    EXPECT_EQ(Driver(**fresh).solo(asked, tokens.size()), tokens);
  }
}

// Steps sent before the one before is answered take their inputs from the device, and give the same bits.
TEST_P(RandomLives, TwoStepsInFlightGiveTheBitsOfOne) {
  const Asked asked[] = {{.prompt = random_prompt(40, 1)}, {.prompt = random_prompt(100, 2)}};
  std::vector<Got> solo[2];
  ExecutorOptions options = small_options(GetParam());
  options.max_in_flight = 2;
  for (int i = 0; i < 2; ++i) {
    auto executor = start_executor(small_options(GetParam()));
    ASSERT_TRUE(executor.has_value());
    solo[i] = Driver(**executor).solo(asked[i], 7);
  }
  auto executor = start_executor(options);
  ASSERT_TRUE(executor.has_value());
  Driver driver(**executor);
  const RequestId a = driver.add(asked[0]), b = driver.add(asked[1]);
  const auto wait = [&] {
    const auto step = (*executor)->wait_step();
    ASSERT_TRUE(step.has_value()) << step.error().message;
    driver.take(*step);
  };
  ASSERT_TRUE((*executor)->submit_step({.rows = {driver.row(a), driver.row(b)}}).has_value());
  for (int i = 0; i < 6; ++i) {
    std::vector<rank::Row> rows;
    rows.push_back(driver.row(i % 2 == 0 ? a : b));
    rows.push_back(driver.row(i % 2 == 0 ? b : a));
    ASSERT_TRUE((*executor)->submit_step({.rows = std::move(rows)}).has_value());
    ASSERT_NO_FATAL_FAILURE(wait());
  }
  ASSERT_NO_FATAL_FAILURE(wait());
  EXPECT_EQ(driver.tokens(a), solo[0]);
  EXPECT_EQ(driver.tokens(b), solo[1]);
}

}  // namespace
}  // namespace tandem::executor
