#include "memory/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/all_reduce.h"
#include "memory/pool_layout.h"
#include "model/scratch.h"
#include "ops/cuda/sampler_bytes.h"

namespace tandem::memory {
namespace {

PlanRequest of(std::string_view size, int world = 1,
               model::LinearAttention mode = model::LinearAttention::Replicated) {
  PlanRequest request{.geometry = *model::published(size), .world = world, .linear_attention = mode};
  request.limits = {.max_tokens = 8192, .max_rows = 256, .max_context = 32768, .max_logit_rows = 64, .slots = 16};
  return request;
}

std::int64_t group_bytes(const RankPlan& plan, model::WeightGroup group) {
  for (const GroupBytes& entry : plan.weights) {
    if (entry.group == group) return entry.bytes;
  }
  return 0;
}

TEST(Planner, PublishedSizesNeedTheBytesOfTheSpecification) {  // spec 1.3, 2.2
  struct Row {
    std::string_view size;
    std::int64_t kv_per_token, state_per_slot;
  };
  for (const Row& row : {Row{"0.8B", 12288, 19537920}, Row{"2B", 12288, 19537920}, Row{"4B", 32768, 51511296},
                         Row{"9B", 32768, 51511296}, Row{"27B", 65536, 153944064}}) {
    const auto plan = plan_capacity(of(row.size));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->ranks[0].page_bytes, row.kv_per_token * 64) << row.size;
    EXPECT_EQ(plan->ranks[0].slot_bytes, row.state_per_slot) << row.size;
  }
  EXPECT_EQ(plan_capacity(of("4B"))->ranks[0].weight_bytes, 8411510272);
}

TEST(Planner, ShardedLinearAttentionIsTheReplicatedBytesDividedByTheDegree) {  // proves P2b gate 2
  for (const std::string_view size : model::kPublishedSizes) {
    const model::Geometry g = *model::published(size);
    const RankPlan whole = plan_capacity(of(size))->ranks[0];
    for (const int world : {2, 4, 8}) {
      const auto plan = plan_capacity(of(size, world, model::LinearAttention::Sharded));
      ASSERT_TRUE(plan) << plan.error().message;
      const std::int64_t norms = std::int64_t{g.linear_layers()} * 128 * 4;
      for (const RankPlan& rank : plan->ranks) {
        EXPECT_EQ((group_bytes(whole, model::WeightGroup::LinearAttention) - norms) / world + norms,
                  group_bytes(rank, model::WeightGroup::LinearAttention));
        EXPECT_EQ(rank.slot_bytes * world, whole.slot_bytes);
        EXPECT_EQ(group_bytes(rank, model::WeightGroup::Mlp) * world, group_bytes(whole, model::WeightGroup::Mlp));
      }
    }
  }
}

// proves R6: the sum and what would fit, before a weight is read
TEST(Planner, ADeviceWithTooLittleFreeMemoryIsRefusedWithTheSumAndTheNumberThatWouldFit) {
  PlanRequest request = of("4B");
  const std::int64_t needed = plan_capacity(request)->ranks[0].fixed_bytes() + plan_capacity(request)->ranks[0].page_bytes * 512;
  EXPECT_TRUE(check_fits(request, 0, needed));
  for (const std::int64_t free : {needed - 1, std::int64_t{9} << 30, std::int64_t{1} << 30, std::int64_t{0}}) {
    const auto refused = check_fits(request, 0, free);
    ASSERT_FALSE(refused) << free;
    EXPECT_EQ(refused.error().kind, ErrorKind::Capacity);
    EXPECT_NE(refused.error().message.find("rank 0"), std::string::npos) << refused.error().message;
    EXPECT_TRUE(refused.error().message.find("--max-requests") != std::string::npos ||
                refused.error().message.find("one request with one page needs") != std::string::npos) << refused.error().message;
  }
  request.world = 2;
  const auto second = check_fits(request, 1, std::int64_t{1} << 30);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("rank 1"), std::string::npos) << second.error().message;
  request.device_bytes = {std::int64_t{1} << 30};  // --memory holds also where more is free
  EXPECT_FALSE(check_fits(request, 0, std::int64_t{100} << 30));
}

TEST(Planner, TheSmallestRankDecidesForAll) {  // proves R5.1
  PlanRequest request = of("4B", 2);
  request.device_bytes = {std::int64_t{80} << 30, std::int64_t{80} << 30};
  const auto equal = plan_capacity(request);
  ASSERT_TRUE(equal) << equal.error().message;
  request.limits.max_context = 262144;
  request.context_is_wish = true;
  request.device_bytes = {std::int64_t{20} << 30, std::int64_t{14} << 30};
  const auto uneven = plan_capacity(request);
  ASSERT_TRUE(uneven) << uneven.error().message;
  EXPECT_EQ(uneven->pages, std::min(uneven->ranks[0].pages, uneven->ranks[1].pages));
  EXPECT_LT(uneven->ranks[1].pages, uneven->ranks[0].pages);
}

TEST(Planner, TheSumNeverExceedsTheDevice) {
  for (const std::int64_t gib : {10, 12, 16, 24, 48, 80, 141}) {
    PlanRequest request = of("4B");
    request.device_bytes = {gib << 30};
    request.reserve_bytes = std::int64_t{512} << 20;
    request.limits.max_context = 262144;
    request.context_is_wish = true;
    const auto plan = plan_capacity(request);
    if (!plan) continue;
    const RankPlan& rank = plan->ranks[0];
    EXPECT_LE(rank.fixed_bytes() + plan->pages * rank.page_bytes, gib << 30);
    EXPECT_GE(plan->pages, request.limits.slots);
  }
}

TEST(Planner, ARefusalNamesWhatWouldFit) {
  PlanRequest request = of("4B");
  request.limits.slots = 1000;
  request.device_bytes = {std::int64_t{24} << 30};
  const auto refused = plan_capacity(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Capacity);
  const std::string& message = refused.error().message;
  const std::size_t at = message.find("it fits with --max-requests ");
  ASSERT_NE(at, std::string::npos) << message;
  const int fits = std::stoi(message.substr(at + 28));
  request.limits.slots = fits;
  EXPECT_TRUE(plan_capacity(request)) << fits;
  request.limits.slots = fits + 1;
  EXPECT_FALSE(plan_capacity(request)) << fits;

  request.limits.slots = 1;
  request.device_bytes = {std::int64_t{1} << 30};
  EXPECT_NE(plan_capacity(request).error().message.find("one request with one page needs"), std::string::npos);
}

TEST(Planner, AContextThatWasAskedForMustFitAndTheModelsOwnNeedNot) {
  PlanRequest request = of("4B");
  request.limits.max_context = 262144;
  request.limits.slots = 1;
  request.device_bytes = {std::int64_t{12} << 30};
  const auto refused = plan_capacity(request);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("--max-context "), std::string::npos) << refused.error().message;
  request.context_is_wish = true;
  const auto plan = plan_capacity(request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_LT(plan->longest_request, 262144);
  EXPECT_EQ(plan->longest_request, std::int64_t{plan->pages} * 64);
}

TEST(Planner, KvMemoryLimitsThePages) {
  PlanRequest request = of("4B");
  request.kv_bytes = std::int64_t{2097152} * 601;
  EXPECT_EQ(plan_capacity(request)->pages, 600);  // one is the scratch page
  request.kv_bytes = std::int64_t{2097152} * 100;
  EXPECT_FALSE(plan_capacity(request));
}

TEST(Planner, DegreesThatDoNotDivideAreRefused) {  // proves R6.2
  const auto refused = plan_capacity(of("4B", 3));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Unsupported);
}

TEST(Planner, TheReportHasEveryLineInExactBytes) {
  PlanRequest request = of("4B", 2, model::LinearAttention::Sharded);
  request.device_bytes = {std::int64_t{80} << 30};
  const auto text = inspect_report(request, ReportFormat::Text);
  ASSERT_TRUE(text) << text.error().message;
  for (const char* expected : {"ranks 0 to 1, each\n", "weights: linear attention", "25,755,648 each",
                               "16 requests + 1 for padding", "longest request 32,768 tokens"}) {
    EXPECT_NE(text->find(expected), std::string::npos) << expected << "\n" << *text;
  }
  const auto json = inspect_report(request, ReportFormat::Json);
  ASSERT_TRUE(json);
  EXPECT_NE(json->find("\"state_slot_bytes\":25755648"), std::string::npos) << *json;
}

// proves R5.1: what a rank's communicator takes is no other's to use
TEST(Planner, TheCommunicatorIsInTheSumAndTakesPages) {
  PlanRequest request = of("4B", 2);
  request.device_bytes = {std::int64_t{40} << 30};
  request.context_is_wish = true;
  request.limits.slots = 64;
  request.limits.max_context = 262144;
  const auto without = plan_capacity(request);
  request.communication_bytes = comm::communicator_bytes(comm::AllReduce::Auto, 2);
  const auto with = plan_capacity(request);
  ASSERT_TRUE(without && with);
  EXPECT_EQ(with->ranks[1].fixed_bytes() - without->ranks[1].fixed_bytes(), request.communication_bytes);
  const std::int64_t pages = without->pages - with->pages, least = request.communication_bytes / with->ranks[0].page_bytes;
  EXPECT_TRUE(pages == least || pages == least + 1) << pages;
  const auto text = inspect_report(request, ReportFormat::Text);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("communicator"), std::string::npos) << *text;
}

// proves R5.1
// A device's sampler counts every id of the vocabulary for each slot, however short the contexts: a gigabyte for 1024 slots.
TEST(Planner, ADevicesSamplerIsInTheSumAndTakesPages) {
  PlanRequest request = of("4B");
  request.limits.slots = 1024;
  request.limits.max_context = 4096;
  request.device_bytes = {std::int64_t{100} << 30};
  const auto on_host = plan_capacity(request);
  request.sampler_slot_bytes = ops::cuda::sampler_slot_bytes(request.geometry.vocab);
  const auto on_device = plan_capacity(request);
  ASSERT_TRUE(on_host && on_device);
  const std::int64_t more = 1025 * (request.sampler_slot_bytes - 4096 * 4);
  EXPECT_GT(1025 * request.sampler_slot_bytes, std::int64_t{1025} * 248320 * 4);
  EXPECT_EQ(on_device->ranks[0].sampler_bytes - on_host->ranks[0].sampler_bytes, more);
  EXPECT_EQ(on_device->ranks[0].fixed_bytes() - on_host->ranks[0].fixed_bytes(), more);
  EXPECT_LT(on_device->pages, on_host->pages);
}

TEST(Planner, MeasuredMemoryGivesPagesOnceTheSlotsArePaidForAndFewerSlotsWhereTheyLeaveTooFewPages) {
  const auto room = [](std::int64_t left, Room wanted, std::int64_t least_pages) {
    const Room got = room_in(left, wanted, least_pages, 50, 10);
    return std::pair(got.slots, got.pages);
  };
  EXPECT_EQ(room(900, {3, 100}, 1), std::pair(3, (900 - 4 * 50 - 10) / 10));
  EXPECT_EQ(room(900, {3, 20}, 1), std::pair(3, 20));             // never more than was wanted
  EXPECT_EQ(room(4 * 50 + 4 * 10, {3, 100}, 1), std::pair(3, 3)); // a page each, and the scratch page
  EXPECT_EQ(room(4 * 50 + 4 * 10 - 1, {3, 100}, 1), std::pair(2, 7));
  EXPECT_EQ(room(4 * 50 + 4 * 10 - 1, {3, 100}, 10), std::pair(1, 12));  // a longest request needs ten
  EXPECT_EQ(room(2 * 50 + 2 * 10, {3, 100}, 1), std::pair(1, 1));
  EXPECT_EQ(room(2 * 50 + 2 * 10 - 1, {3, 100}, 1).first, 0);
  EXPECT_EQ(room(-5, {3, 100}, 1), std::pair(0, 0));
  EXPECT_EQ(room_in(900, {3, 7}, 1, 50, 0).pages, 7);  // a model without full attention
  EXPECT_EQ(room_in(9, {3, 7}, 1, 0, 1).slots, 3);     // and one without linear attention
}

}  // namespace
}  // namespace tandem::memory
