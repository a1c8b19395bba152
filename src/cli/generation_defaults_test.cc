#include "cli/generation_defaults.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace tandem::cli {
namespace {

class GenerationDefaults : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "generation_defaults_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<server::SamplingDefaults> read(const std::string& text) {
    std::ofstream(folder_ / "generation_config.json") << text;
    return read_sampling_defaults(folder_);
  }
  // What follows the file's name in the refusal.
  std::string refusal(const std::string& text) {
    const auto got = read(text);
    if (got) return "accepted";
    const std::string file = (folder_ / "generation_config.json").string();
    EXPECT_EQ(got.error().message.substr(0, file.size()), file);
    return got.error().message.substr(file.size());
  }

  std::filesystem::path folder_;
};

TEST_F(GenerationDefaults, TheBoundsAreThoseOfTheSameFieldsInARequest) {
  EXPECT_EQ(refusal(R"({"temperature":2.5})"), ": temperature must be a number from 0 to 2, got 2.5");
  EXPECT_EQ(refusal(R"({"temperature":"hot"})"), ": temperature must be a number from 0 to 2, got \"hot\"");
  EXPECT_EQ(refusal(R"({"top_p":-0.1})"), ": top_p must be a number from 0 to 1, got -0.1");
  EXPECT_EQ(refusal(R"({"min_p":2})"), ": min_p must be a number from 0 to 1, got 2");
  EXPECT_EQ(refusal(R"({"repetition_penalty":0})"), ": repetition_penalty must be a number from 0.01 to 100, got 0");
  EXPECT_EQ(refusal(R"({"top_k":-2})"), ": top_k must be an integer of at least -1, got -2");
  EXPECT_EQ(refusal(R"({"top_k":1.5})"), ": top_k must be an integer of at least -1, got 1.5");
  EXPECT_EQ(refusal(R"({"top_k":true})"), ": top_k must be an integer of at least -1, got true");
}

TEST_F(GenerationDefaults, WhatTheFileSaysIsTaken) {
  const auto got = read(R"({"temperature":0.6,"top_p":0,"top_k":20,"min_p":null,"repetition_penalty":0.01})");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->temperature, 0.6f);
  EXPECT_EQ(got->top_p, 0.0f);
  EXPECT_EQ(got->top_k, 20);
  EXPECT_EQ(got->min_p, 0.0f);
  EXPECT_EQ(got->repetition_penalty, 0.01f);
  EXPECT_EQ(read(R"({"top_k":-1})")->top_k, 0);          // off
  EXPECT_EQ(read(R"({"top_k":50000000000})")->top_k, 0);  // no vocabulary is as large
  EXPECT_EQ(read(R"({"temperature":0.6,"do_sample":false})")->temperature, 0.0f);
}

TEST_F(GenerationDefaults, AFolderWithoutTheFileHasTheDefaultsOfTheApi) {
  const auto got = read_sampling_defaults(folder_);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->temperature, 1.0f);
  EXPECT_EQ(got->top_k, 0);
  EXPECT_EQ(refusal("[]"), " is not a JSON object");
  EXPECT_EQ(refusal(""), " is empty");
}

}  // namespace
}  // namespace tandem::cli
