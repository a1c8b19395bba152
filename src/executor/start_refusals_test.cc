#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "executor/test_driver.h"

// What start-up refuses before it opens a weight.
namespace tandem::executor {
namespace {

using ::testing::HasSubstr;
using testing::small_options;

// proves R6.1, R6.2 and the stage of P1: refused before any weight is opened
TEST(StartRefusals, NameTheOptionItsValueAndWhatWorks) {
  struct Case {
    const char* message;
    std::function<void(ExecutorOptions&)> spoil;
  };
  const Case cases[] = {
      {"no rank", [](auto& o) { o.devices.ordinals.clear(); }},
      {"device 16 of 0,16; ordinals are 0 to 15",
       [](auto& o) {
         o.devices.ordinals = {0, 16};
       }},
      {"device -1 of -1; ordinals", [](auto& o) { o.devices.ordinals = {-1}; }},
      {"device 3 twice in 3,1,3",
       [](auto& o) {
         o.devices.ordinals = {3, 1, 3};
       }},
      {"divide over 3 ranks",
       [](auto& o) {
         o.devices.ordinals = {0, 1, 2};
       }},
      {"--mixed on with 2 ranks; --mixed off works",
       [](auto& o) {
         o.devices.ordinals = {0, 1};
         o.mixed = true;
       }},
      {"--linear-attention sharded with 2 ranks; --linear-attention replicated works",
       [](auto& o) {
         o.devices.ordinals = {0, 1};
         o.linear_attention = model::LinearAttention::Sharded;
       }},
      {"--cuda-graphs on with 2 ranks; --cuda-graphs auto (eager) or off works",
       [](auto& o) {
         o.devices.ordinals = {0, 1};
         o.record_decode = true;
       }},
      {"--max-requests = 0; 1 or more", [](auto& o) { o.max_requests = 0; }},
      {"--max-step-tokens = 63; 64 or more", [](auto& o) { o.max_step_tokens = 63; }},
      {"--max-mixed-tokens = 66; 67 or more", [](auto& o) { o.max_mixed_tokens = 66; }},
      {"--max-context = 1025; the model was made for 1024", [](auto& o) { o.max_context = 1025; }},
      {"cpu-threads = -1", [](auto& o) { o.devices.cpu_threads = -1; }},
      {"config.json", [](auto& o) { o.model = "/nowhere"; }},
      {"--debug-take-memory has 2 sizes for 1 ranks",
       [](auto& o) {
         o.taken_bytes = {1, 2};
       }},
      {"--linear-attention sharded with 1 rank;", [](auto& o) { o.linear_attention = model::LinearAttention::Sharded; }},
      {"--memory = 0; 1 or more works", [](auto& o) { o.memory_bytes = {0}; }},
      {"--memory has 2 sizes for 1 ranks",
       [](auto& o) {
         o.memory_bytes = {1, 2};
       }},
  };
  for (const Case& c : cases) {
    ExecutorOptions options = small_options();
    c.spoil(options);
    const auto refused = plan_start(options);
    ASSERT_FALSE(refused.has_value()) << c.message;
    EXPECT_THAT(refused.error().message, HasSubstr(c.message));
  }
  ExecutorOptions options = small_options(2);
  options.devices.ordinals = {15, 3};  // any distinct ordinals, in any order (R6.1)
  const auto plan = plan_start(options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_FALSE(plan->mixed);
}

}  // namespace
}  // namespace tandem::executor
