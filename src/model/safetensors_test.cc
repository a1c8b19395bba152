#include "model/safetensors.h"

#include <gtest/gtest.h>

#include "model/testing.h"

namespace tandem::model {
namespace {

using testing::safetensors_bytes;

Result<std::vector<StoredTensor>> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f.safetensors");
}

std::string entry(std::string_view shape, std::string_view offsets, std::string_view dtype = "F32") {
  return R"({"t":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) + R"(,"data_offsets":)" + std::string(offsets) + "}}";
}

TEST(Safetensors, AGoodFileIsReadInTheOrderOfItsData) {
  const std::string file = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,8],"data_offsets":[4,4]}}   )",
      "abcdEFGHIJKL");
  const auto tensors = parse(file);
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[0].name, "a");  // a scalar has one element
  EXPECT_EQ((*tensors)[1].name, "e");  // no element takes no bytes
  EXPECT_EQ((*tensors)[2].name, "b");
  EXPECT_EQ((*tensors)[2].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(static_cast<char>((*tensors)[2].data[0]), 'E');
}

struct Bad {
  std::string file;
  std::string_view message;
};

class BadSafetensors : public ::testing::TestWithParam<Bad> {};

TEST_P(BadSafetensors, IsRefusedNamingTheFileAndTheTensor) {
  const auto parsed = parse(GetParam().file);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().kind, ErrorKind::Corrupt);
  EXPECT_TRUE(parsed.error().message.starts_with("f.safetensors")) << parsed.error().message;
  EXPECT_NE(parsed.error().message.find(GetParam().message), std::string::npos) << parsed.error().message;
}

std::string length(std::uint64_t n, std::size_t rest) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[static_cast<std::size_t>(i)] = static_cast<char>(n >> (8 * i));
  return file + std::string(rest, ' ');
}

const std::string kData(64, 'x');

INSTANTIATE_TEST_SUITE_P(
    EachRule, BadSafetensors,
    ::testing::Values(
        Bad{"", "0 bytes"}, Bad{"1234567", "7 bytes"},  //
        Bad{length(~std::uint64_t{0} - 2, 100), "header length 18446744073709551613"},
        Bad{length(std::uint64_t{1} << 63, 100), "header length 9223372036854775808"},
        Bad{length(std::uint64_t{1} << 40, 100), "header length 1099511627776 in a file of 108 bytes; expected between 2 and 100"},
        Bad{length(101, 100), "header length 101"}, Bad{length(0, 100), "header length 0"}, Bad{length(1, 100), "header length 1"},
        Bad{safetensors_bytes("[]", ""), "not a JSON object"}, Bad{safetensors_bytes("{\"a\"", ""), "not a JSON object"},
        Bad{safetensors_bytes("{\"a\":\"\xff\"}", ""), "not a JSON object"},
        Bad{safetensors_bytes(std::string(2000, '{'), ""), "not a JSON object"},
        Bad{safetensors_bytes(R"({"t":)" + std::string(20, '[') + std::string(20, ']') + "}", ""), "not a JSON object"},
        Bad{safetensors_bytes(R"({"t":7})", ""), "tensor t is not an object"},
        Bad{safetensors_bytes(R"({"__metadata__":7})", ""), "__metadata__"},
        Bad{safetensors_bytes(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", kData), "tensor t has no dtype"},
        Bad{safetensors_bytes(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", kData), "tensor t has no shape"},
        Bad{safetensors_bytes(R"({"t":{"dtype":"F32","shape":[1]}})", kData), "tensor t has no data_offsets"},
        Bad{safetensors_bytes(R"({"t":{"dtype":"F32","dtype":"BF16","shape":[1],"data_offsets":[0,4]}})", kData), "tensor t gives dtype twice"},
        Bad{safetensors_bytes(entry("[1]", "[0,4]", "F99"), kData), "tensor t has the unknown dtype F99"},
        Bad{safetensors_bytes(entry("[32,8]", "[0,65536]"), kData), "tensor t lies at bytes [0, 65536] of 64"},
        Bad{safetensors_bytes(entry("[32,8]", "[0,64]"), kData), "tensor t is F32 [32, 8], which is 1024 bytes, but data_offsets [0, 64] span 64"},
        Bad{safetensors_bytes(entry("[16]", "[64,0]"), kData), "tensor t lies at bytes [64, 0]"},
        Bad{safetensors_bytes(entry("[16]", "[0]"), kData), "not two whole numbers"},
        Bad{safetensors_bytes(entry("[16]", "[0,64,64]"), kData), "not two whole numbers"},
        Bad{safetensors_bytes(entry("[16]", "[0,64.0]"), kData), "not two whole numbers"},
        Bad{safetensors_bytes(entry("[16]", "[-64,0]"), kData), "not two whole numbers"},
        Bad{safetensors_bytes(entry("[4294967296,4294967296]", "[0,64]"), kData), "overflows"},
        Bad{safetensors_bytes(entry("[9223372036854775807,2]", "[0,64]"), kData), "overflows"},
        Bad{safetensors_bytes(entry("[18446744073709551615]", "[0,64]"), kData), "not a whole number"},
        Bad{safetensors_bytes(entry("[-1,4]", "[0,64]"), kData), "not a whole number"},
        Bad{safetensors_bytes(entry("[1.5]", "[0,64]"), kData), "not a whole number"},
        Bad{safetensors_bytes(entry("16", "[0,64]"), kData), "a shape that is not a list"},
        Bad{safetensors_bytes(entry("[]", "[0,0]"), ""), "tensor t is F32 [], which is 4 bytes"},
        Bad{safetensors_bytes(entry("[1,1,1,1,1,1,1,1,16]", "[0,64]"), kData), "9 dimensions"},
        Bad{safetensors_bytes(entry("[8]", "[0,32]"), kData), "end at byte 32 of 64"},
        Bad{safetensors_bytes(entry("[8]", "[32,64]"), kData), "begins at byte 32 of the data; expected 0: the file has a gap"},
        Bad{safetensors_bytes(R"({"a":{"dtype":"U8","shape":[40],"data_offsets":[0,40]},"t":{"dtype":"U8","shape":[32],"data_offsets":[32,64]}})", kData), "overlapping"},
        Bad{safetensors_bytes(R"({"t":{"dtype":"U8","shape":[32],"data_offsets":[0,32]},"t":{"dtype":"U8","shape":[32],"data_offsets":[32,64]}})", kData), "tensor t is given twice"}));

TEST(Safetensors, AnyCutOrFlippedByteOfAHeaderNeverReadsOutside) {  // run under the address sanitizer
  const std::string good = safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"b":{"dtype":"BF16","shape":[16],"data_offsets":[32,64]}})", kData);
  ASSERT_TRUE(parse(good));
  for (std::size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(parse(good.substr(0, cut))) << cut;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    std::string bad = good;
    bad[mixed_bits(11, i) % (bad.size() - kData.size())] = static_cast<char>(mixed_bits(12, i));
    const auto parsed = parse(bad);
    if (!parsed) continue;
    for (const StoredTensor& tensor : *parsed) {
      const char* begin = reinterpret_cast<const char*>(tensor.data.data());
      EXPECT_GE(begin, bad.data()) << i;
      EXPECT_LE(begin + tensor.data.size(), bad.data() + bad.size()) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::model
