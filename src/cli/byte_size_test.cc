#include "cli/byte_size.h"

#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

TEST(ByteSize, UnitsArePowersOf1024) {
  EXPECT_EQ(parse_bytes("0", "memory").value(), 0);
  EXPECT_EQ(parse_bytes("12345", "memory").value(), 12345);
  EXPECT_EQ(parse_bytes("3K", "memory").value(), 3 << 10);
  EXPECT_EQ(parse_bytes("80G", "memory").value(), std::int64_t{80} << 30);
  EXPECT_EQ(parse_bytes("1.5GiB", "memory").value(), std::int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2TB", "memory").value(), std::int64_t{2} << 40);
}

TEST(ByteSize, AnythingElseIsRefusedWithTheFlagAndTheText) {
  for (const char* text : {"", "G", "-1", "12X", "1GG", "nan", "inf", "1e30", "8 G", "8g "}) {
    const auto parsed = parse_bytes(text, "kv-memory");
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find("[kv-memory] '" + std::string(text) + "'"), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace tandem::cli
