#include "executor/cuda_geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::executor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaGeometry, EveryPublishedSizeRuns) {
  for (const std::string_view size : model::kPublishedSizes) {
    const auto checked = check_cuda_geometry(model::published(size).value());
    EXPECT_TRUE(checked.has_value()) << size << ": " << checked.error().message;
  }
}

// proves R6.2: the field, its value, what works
TEST(CudaGeometry, WhatTheKernelsAreNotBuiltForIsRefusedByName) {
  struct Case {
    void (*change)(model::Geometry&);
    const char *field, *works;
  };
  const Case cases[] = {
      {[](model::Geometry& g) { g.query_heads = 36; }, "num_attention_heads = 36 with num_key_value_heads = 4", "up to 8"},
      {[](model::Geometry& g) { g.value_heads = 144; }, "linear_num_value_heads = 144 with linear_num_key_heads = 16", "up to 8"},
      {[](model::Geometry& g) { g.key_heads = g.value_heads = 3; }, "linear_num_value_heads = 3", "even"},
      {[](model::Geometry& g) { g.hidden = 2564; }, "hidden_size = 2564", "multiples of 8"},
      {[](model::Geometry& g) { g.intermediate = 9220; }, "intermediate_size = 9220", "multiples of 8"},
      {[](model::Geometry& g) { g.hidden = 8200; }, "hidden_size = 8200", "up to 8192"},
      {[](model::Geometry& g) { g.vocab = 500000; }, "vocab_size = 500000", "up to 460000"},
  };
  for (const Case& c : cases) {
    model::Geometry geometry = model::published("4B").value();
    c.change(geometry);
    const auto checked = check_cuda_geometry(geometry);
    ASSERT_FALSE(checked.has_value()) << c.field;
    EXPECT_EQ(checked.error().kind, ErrorKind::Unsupported);
    EXPECT_THAT(checked.error().message, AllOf(HasSubstr(c.field), HasSubstr(c.works), HasSubstr("--device cpu")));
  }
}

TEST(CudaGeometry, TheLastThatFitRun) {
  model::Geometry geometry = model::published("4B").value();
  geometry.query_heads = 32, geometry.value_heads = 128, geometry.hidden = 8192, geometry.vocab = 460000;
  EXPECT_TRUE(check_cuda_geometry(geometry).has_value());
}

}  // namespace
}  // namespace tandem::executor
