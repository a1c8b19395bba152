#include "model/fabricate.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>

#include "model/testing.h"

namespace tandem::model {
namespace {

using testing::read_file;
using testing::small_geometry;
using testing::TempFolder;

// Of the weights of small_geometry(false), seed 1: a change of it changes every fixture that was made.
constexpr std::uint64_t kExpectedWeights = 2333380086130182116u;

TEST(Fabricate, ThePublishedLayoutHasThePublishedTensorsAndIndexSizes) {  // spec 2.1, 2.4
  struct Row {
    std::string_view size;
    std::size_t tensors, index_bytes;
    std::int64_t tensor_bytes;
    std::size_t files;
  };
  for (const Row& row : {Row{"0.8B", 488, 50900, 1746882752, 1}, Row{"2B", 632, 64460, 4548144832, 1},
                         Row{"4B", 738, 76196, 9319737856, 2}, Row{"9B", 775, 79657, 19306216416, 4}}) {
    const auto made = plan_checkpoint({.geometry = *published(row.size), .layout = FabricatedLayout::Published});
    ASSERT_TRUE(made) << made.error().message;
    std::size_t tensors = 0;
    for (const MadeFile& file : made->files) tensors += file.tensors.size();
    EXPECT_EQ(tensors, row.tensors) << row.size;
    EXPECT_EQ(made->total_bytes, row.tensor_bytes) << row.size;
    EXPECT_EQ(made->index.size(), row.index_bytes) << row.size;
    EXPECT_EQ(made->files.size(), row.files) << row.size;
  }
  // Single-file sizes are known to the byte, header included.
  const auto file_bytes = [](std::string_view size) {
    const auto made = plan_checkpoint({.geometry = *published(size), .layout = FabricatedLayout::Published});
    return 8 + static_cast<std::int64_t>(made->files[0].header.size()) + made->files[0].data_bytes;
  };
  EXPECT_EQ(file_bytes("0.8B"), 1746942600);
  EXPECT_EQ(file_bytes("2B"), 4548221488);
  const auto largest = plan_checkpoint({.geometry = *published("27B"), .layout = FabricatedLayout::Published});
  EXPECT_EQ(largest->total_bytes, 55562872800);
}

TEST(Fabricate, TheSameOptionsGiveTheSameBytesOnAnyMachineAndNumberOfThreads) {
  const auto hashes = [](int threads, std::uint64_t seed) {
    const TempFolder folder;
    EXPECT_TRUE(fabricate({.geometry = small_geometry(false), .folder = folder.path() / "m", .seed = seed, .threads = threads}));
    std::vector<std::uint64_t> all;
    for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      const std::string bytes = read_file(folder.path() / "m" / name);
      EXPECT_FALSE(bytes.empty()) << name;
      all.push_back(XXH3_64bits(bytes.data(), bytes.size()));
    }
    return all;
  };
  const auto one = hashes(1, 1);
  EXPECT_EQ(hashes(3, 1), one);
  EXPECT_NE(hashes(1, 2)[0], one[0]);
  EXPECT_EQ(one[0], kExpectedWeights);
}

TEST(Fabricate, ShardsAreCutBeforeTheirLimitAndIndexed) {
  const TempFolder folder;
  const Geometry g = small_geometry();
  ASSERT_TRUE(fabricate({.geometry = g, .folder = folder.path() / "m", .shard_bytes = 200000}));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "m" / "model.safetensors.index.json"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "m" / "model.safetensors"));
  const auto opened = Checkpoint::open(folder.path() / "m", g);
  ASSERT_TRUE(opened) << opened.error().message;
  std::int64_t expected = 0;
  for (const TensorSpec& spec : text_tensors(g)) expected += spec.bytes();
  EXPECT_EQ(opened->text_bytes(), expected);
  Geometry read = *read_geometry(folder.path() / "m");
  read.name = g.name;
  EXPECT_EQ(read, g);
}

TEST(Fabricate, HalfLivesSpreadFromTwoToTenThousandTokens) {
  for (const int heads : {4, 8, 16, 32, 48}) {
    for (const int layer : {0, 1, 2, 5, 30}) {
      double shortest = 1e9, longest = 0;
      std::vector<double> lives;
      for (int head = 0; head < heads; ++head) {
        const double a_log = static_cast<double>(made_a_log(layer, head, heads)) / static_cast<double>(kFixedOne);
        const double dt = static_cast<double>(made_dt_bias(layer, head)) / static_cast<double>(kFixedOne);
        lives.push_back(std::log(2.0) / (std::exp(a_log) * std::log1p(std::exp(dt))));
        shortest = std::min(shortest, lives.back());
        longest = std::max(longest, lives.back());
      }
      EXPECT_NEAR(shortest, 2.0, 1e-3);
      EXPECT_NEAR(longest, 10000.0, 1.0);
    }
  }
}

TEST(Fabricate, NormsAndDecaysInFloat32AreNotBf16Values) {
  const testing::Fabricated model(small_geometry());
  int exact = 0, all = 0;
  for (const Role role : {Role::ALog, Role::GatedNorm}) {
    const StoredTensor& tensor = model.checkpoint->tensor(role, 0);
    for (std::size_t i = 0; i < tensor.data.size() / 4; ++i) {
      float value;
      std::memcpy(&value, tensor.data.data() + i * 4, 4);
      exact += value == round_bf16(value);
      ++all;
    }
  }
  EXPECT_LT(exact * 20, all);
}

TEST(FabricateValues, FixedPointBecomesTheNearestFloat) {
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto value = static_cast<std::int64_t>(mixed_bits(3, i)) >> (mixed_bits(4, i) % 40 + 24);
    const float expected = static_cast<float>(std::ldexp(static_cast<double>(value), -kFixedBits));
    ASSERT_EQ(fixed_to_float(value), expected) << value;
    // Through double: float32 first would round twice.
    const double exact = std::ldexp(static_cast<double>(value), -kFixedBits);
    const float narrow = to_float(fixed_to_bf16(value));
    const float up = to_float(bf16{static_cast<std::uint16_t>(fixed_to_bf16(value).bits + 1)});
    ASSERT_LE(std::abs(exact - narrow), std::abs(exact - up)) << value;
  }
  EXPECT_EQ(fixed_to_bf16(0), bf16{});
  EXPECT_EQ(to_float(fixed_to_bf16(-kFixedOne)), -1.0f);
}

TEST(FabricateValues, ABellHasItsMeanAndDeviation) {
  const BellTable table({.mean = kFixedOne / 2, .deviation = kFixedOne / 10});
  std::vector<bf16> values(100003);
  table.fill(tensor_key(1, "x"), 0, values);
  double sum = 0, squares = 0;
  for (const bf16 v : values) {
    sum += to_float(v);
    squares += (to_float(v) - 0.5) * (to_float(v) - 0.5);
  }
  EXPECT_NEAR(sum / static_cast<double>(values.size()), 0.5, 0.002);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(values.size())), 0.1, 0.003);
  std::vector<bf16> tail(3);
  table.fill(tensor_key(1, "x"), 100000, tail);
  EXPECT_EQ(tail[2], values[100002]);
}

TEST(Fabricate, WhatCannotBeMadeIsRefused) {
  const TempFolder folder;
  testing::write_file(folder.path() / "something", "here");
  EXPECT_NE(fabricate({.geometry = small_geometry(), .folder = folder.path()}).error().message.find("not empty"), std::string::npos);
  Geometry tiny = small_geometry();
  tiny.vocab = 300;
  EXPECT_NE(fabricate({.geometry = tiny, .folder = folder.path() / "m"}).error().message.find("at least 512"), std::string::npos);
  EXPECT_NE(fabricate({.geometry = small_geometry(), .folder = folder.path() / "m", .layout = FabricatedLayout::Published})
                .error().message.find("published size"), std::string::npos);
  Geometry huge = *published("27B");
  huge.layers = layer_pattern(1024, 4);
  huge.intermediate = 1 << 18;
  const auto refused = fabricate({.geometry = huge, .folder = folder.path() / "m"});
  EXPECT_EQ(refused.error().kind, ErrorKind::Capacity) << refused.error().message;
}

TEST(Fabricate, TheTokenizerHasATokenForEveryId) {
  for (const int vocab : {512, 4096, 248320}) {
    const std::string text = made_tokenizer(vocab);
    std::vector<bool> seen(static_cast<std::size_t>(vocab));
    // "token":id, of the vocabulary; "id":n of the added tokens.
    const std::size_t begin = text.find("\"vocab\":{"), end = text.find("},\"merges\"");
    for (std::size_t at = text.find("\":", begin + 9); at < end; at = text.find("\":", at + 1)) {
      if (std::isdigit(static_cast<unsigned char>(text[at + 2])) == 0) continue;
      seen.at(static_cast<std::size_t>(std::stoi(text.substr(at + 2, 8)))) = true;
    }
    int added = 0;
    for (std::size_t at = text.find("{\"id\":"); at < begin; at = text.find("{\"id\":", at + 1)) {
      seen.at(static_cast<std::size_t>(std::stoi(text.substr(at + 6, 8)))) = true;
      ++added;
    }
    EXPECT_EQ(added, 33);
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool b) { return b; })) << vocab;
  }
  EXPECT_EQ(made_end_of_text(248320), 248044);
}

}  // namespace
}  // namespace tandem::model
