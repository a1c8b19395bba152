#include "ops/gemm_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tandem::ops {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] =
    "device NVIDIA H200\n"
    "cublaslt 130001\n"
    "# a comment\n"
    "linear 2560 9216 49 64 few-tokens 2 6 4 us 13.1 limit 0.84\n"
    "linear 2560 9216 129 256 cublaslt 2a 1 0 0 0 0 0 ffffffffffffffff us 15.0 limit 0.8 | id 66\n"
    "swiglu 18432 2560 17 64 few-tokens 2 1 4 us 26 limit 0.83\n";

GemmTable table() { return GemmTable::parse(kText, "t").value(); }

TEST(GemmTable, AnEntryServesItsProductAndTokensOnly) {  // proves R1.5
  const GemmTable t = table();
  EXPECT_EQ(t.device(), "NVIDIA H200");
  ASSERT_TRUE(t.find(GemmOp::Linear, 2560, 9216, 49));
  EXPECT_EQ(t.find(GemmOp::Linear, 2560, 9216, 64)->plan, (FewTokensPlan{2, 6, 4}));
  EXPECT_EQ(t.find(GemmOp::Linear, 2560, 9216, 200)->words[0], 0x2au);
  EXPECT_EQ(t.find(GemmOp::Linear, 2560, 9216, 200)->words[7], ~std::uint64_t{0});
  EXPECT_FALSE(t.find(GemmOp::Linear, 2560, 9216, 48));
  EXPECT_FALSE(t.find(GemmOp::Linear, 2560, 9216, 65));
  EXPECT_FALSE(t.find(GemmOp::Linear, 9216, 2560, 64));
  EXPECT_FALSE(t.find(GemmOp::Linear, 18432, 2560, 64));
  EXPECT_TRUE(t.find(GemmOp::Swiglu, 18432, 2560, 64));
}

TEST(GemmTable, WhatIsWrittenReadsBackAndKeepsItsHash) {
  const std::string text = format_gemm_table("NVIDIA H200", 130001, table().entries());
  const GemmTable again = GemmTable::parse(text, "t").value();
  ASSERT_EQ(again.entries().size(), 3u);
  EXPECT_EQ(again.entries()[0].plan, (FewTokensPlan{2, 6, 4}));
  EXPECT_EQ(again.entries()[1].words, table().entries()[1].words);
  EXPECT_EQ(again.hash(), GemmTable::parse(text, "u").value().hash());
  EXPECT_NE(again.hash(), GemmTable::parse(text + "\n", "t").value().hash());
}

TEST(GemmTable, AMistakeIsNamedWithItsLine) {
  const auto message = [](const std::string& line) {
    const auto parsed = GemmTable::parse("device D\ncublaslt 1\n" + line + "\n", "h.txt");
    return parsed ? std::string("accepted") : parsed.error().message;
  };
  EXPECT_THAT(message("lineal 1 1 1 1 few-tokens 1 1 2 us 1 limit 1"), HasSubstr("h.txt, line 3: 'lineal'"));
  EXPECT_THAT(message("linear 0 8 1 1 few-tokens 1 1 2 us 1 limit 1"), HasSubstr("n = '0'"));
  EXPECT_THAT(message("linear 8 8 9 8 few-tokens 1 1 2 us 1 limit 1"), HasSubstr("last tokens = '8'"));
  EXPECT_THAT(message("linear 8 8 1 8 few-tokens 1 9 2 us 1 limit 1"), HasSubstr("splits = '9'"));
  EXPECT_THAT(message("linear 8 8 1 8 cutlass 1 us 1 limit 1"), HasSubstr("kind 'cutlass'"));
  EXPECT_THAT(message("linear 8 8 1 8 cublaslt 1 2 3 us 1 limit 1"), HasSubstr("algorithm word = 'us'"));
  EXPECT_THAT(message("swiglu 8 8 1 8 cublaslt 1 2 3 4 5 6 7 8 us 1 limit 1"), HasSubstr("few-tokens works"));
  EXPECT_THAT(message("linear 8 8 1 8 few-tokens 1 1 2 us x limit 1"), HasSubstr("us = 'x'"));
  EXPECT_THAT(message("linear 8 8 1 8 few-tokens 1 1 2 us 1 limit 1 more"), HasSubstr("'more'"));
  EXPECT_THAT(message("linear 8 8 1 8 few-tokens 1 1 2 us 1 limit 1\nlinear 8 8 8 9 few-tokens 1 1 2 us 1 limit 1"), HasSubstr("served twice"));
  EXPECT_THAT(GemmTable::parse("cublaslt 1\n", "h.txt").error().message, HasSubstr("names no device"));
}

TEST(GemmTable, ADeviceGetsItsOwnTableOrIsToldThatThereIsNone) {  // proves R1.5
  const GemmTableFile files[] = {{"other.txt", "device Other\ncublaslt 1\n"}, {"h200.txt", kText}};
  const ChosenGemmTable mine = choose_gemm_table(files, "NVIDIA H200", 130001);
  ASSERT_TRUE(mine.table);
  EXPECT_EQ(mine.table->entries().size(), 3u);
  EXPECT_THAT(mine.note, HasSubstr(fmt::format("hash {:016x}", table().hash())));
  const ChosenGemmTable none = choose_gemm_table(files, "NVIDIA H100", 130001);
  EXPECT_FALSE(none.table);
  EXPECT_THAT(none.note, HasSubstr("no GEMM table for NVIDIA H100 (there is one for: NVIDIA H200, Other)"));
}

TEST(GemmTable, EntriesOfAnotherLibraryVersionAreIgnoredOurOwnStay) {  // proves R1.5
  const GemmTableFile files[] = {{"h200.txt", kText}};
  const ChosenGemmTable chosen = choose_gemm_table(files, "NVIDIA H200", 130100);
  ASSERT_TRUE(chosen.table);
  EXPECT_TRUE(chosen.table->find(GemmOp::Linear, 2560, 9216, 64));
  EXPECT_FALSE(chosen.table->find(GemmOp::Linear, 2560, 9216, 200));
  EXPECT_THAT(chosen.note, HasSubstr("made with cuBLASLt 130001, and this is 130100: the 1 entries"));
}

TEST(GemmTable, AFileThatCannotBeReadIsIgnoredAndNamed) {
  const GemmTableFile files[] = {{"bad.txt", "device NVIDIA H200\nnonsense\n"}};
  const ChosenGemmTable chosen = choose_gemm_table(files, "NVIDIA H200", 1);
  EXPECT_FALSE(chosen.table);
  EXPECT_THAT(chosen.note, HasSubstr("bad.txt, line 2"));
}

TEST(GemmTable, BucketsCoverEveryCountAndOneEntryServesAWholeBucket) {
  std::vector<std::string> notes;
  const GemmTable t = table();
  const auto all = [](const GemmEntry&, int) -> Result<void> { return {}; };
  const std::vector<GemmBucket> buckets = plan_gemm(&t, GemmOp::Linear, 2560, 9216, 600, all, notes);
  EXPECT_TRUE(notes.empty());
  int previous = 0;
  for (const GemmBucket& bucket : buckets) {
    for (int tokens = previous + 1; tokens <= bucket.tokens; ++tokens) EXPECT_EQ(gemm_bucket(tokens), bucket.tokens);
    EXPECT_EQ(bucket.entry != nullptr, bucket.tokens == 64 || (bucket.tokens > 128 && bucket.tokens <= 256)) << bucket.tokens;
    previous = bucket.tokens;
  }
  EXPECT_GE(previous, 600);
}

TEST(GemmTable, AnEntryThatTheDeviceRefusesFallsBackWithOneLine) {  // proves R1.5
  std::vector<std::string> notes;
  const GemmTable t = table();
  int asked = 0;
  const auto refuse = [&](const GemmEntry& entry, int) -> Result<void> {
    ++asked;
    if (entry.kind == GemmKind::Library) return fail(ErrorKind::Unsupported, "CUBLAS_STATUS_NOT_SUPPORTED");
    return {};
  };
  for (const GemmBucket& bucket : plan_gemm(&t, GemmOp::Linear, 2560, 9216, 256, refuse, notes))
    EXPECT_EQ(bucket.entry != nullptr, bucket.tokens == 64);
  EXPECT_EQ(asked, 2);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("linear 2560 x 9216, 129 to 256 tokens cannot be used here (CUBLAS_STATUS_NOT_SUPPORTED)"));
}

TEST(GemmTable, WithoutATableEveryBucketTakesTheHeuristic) {
  std::vector<std::string> notes;
  const auto all = [](const GemmEntry&, int) -> Result<void> { return {}; };
  for (const GemmBucket& bucket : plan_gemm(nullptr, GemmOp::Linear, 8, 8, 64, all, notes)) EXPECT_FALSE(bucket.entry);
}

// An entry starts and ends where a bucket does, or part of its range would never be used.
TEST(GemmTable, CommittedTablesReadAndTheirRangesAreWholeBuckets) {  // proves R1.5
  int files = 0;
  for (const auto& item : std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/src/ops/cuda/gemm_tables")) {
    if (item.path().extension() != ".txt") continue;
    std::ostringstream text;
    text << std::ifstream(item.path()).rdbuf();
    const auto parsed = GemmTable::parse(text.str(), item.path().filename().string());
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_FALSE(parsed->entries().empty());
    for (const GemmEntry& entry : parsed->entries()) {
      EXPECT_EQ(gemm_bucket(entry.last_tokens), entry.last_tokens) << item.path() << ' ' << entry.n << " x " << entry.k;
      if (entry.first_tokens > 1) {
        EXPECT_EQ(gemm_bucket(entry.first_tokens - 1), entry.first_tokens - 1) << item.path() << ' ' << entry.n << " x " << entry.k;
      }
    }
    ++files;
  }
  EXPECT_GE(files, 1);
}

}  // namespace
}  // namespace tandem::ops
