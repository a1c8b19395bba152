#include "server/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(HeadText, WholeBodiesHaveALengthAndStreamsChunks) {
  const std::string whole = head_text({.status = 404, .body = "abc"}, {});
  EXPECT_THAT(whole, HasSubstr("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(whole, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(whole, EndsWith("\r\n\r\n"));
  const std::string stream = head_text({.streamed = true}, {});
  EXPECT_THAT(stream, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(stream, Not(HasSubstr("Content-Length")));
}

TEST(HeadText, OldClientsGetNoChunks) {
  const std::string stream = head_text({.streamed = true}, {.http10 = true, .keep_alive = false});
  EXPECT_THAT(stream, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_THAT(stream, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(head_text({}, {.http10 = true, .keep_alive = true}), HasSubstr("Connection: keep-alive\r\n"));
}

TEST(Chunks, AnEmptyPieceIsNotTheEnd) {
  std::string out;
  append_chunk(out, "");
  append_chunk(out, std::string(26, 'x'));
  append_last_chunk(out);
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n0\r\n\r\n");
}

TEST(OriginForm, TheHostOfAnAbsoluteTargetIsLeftOut) {
  EXPECT_EQ(origin_form("http://host:8000/v1/models?x=1"), "/v1/models?x=1");
  EXPECT_EQ(origin_form("https://host"), "/");
  EXPECT_EQ(origin_form("http://host?x"), "/?x");
  EXPECT_EQ(origin_form("/http://host/"), "/http://host/");
  EXPECT_EQ(origin_form("*"), "*");
}

TEST(PercentDecode, BrokenEscapesStay) {
  EXPECT_EQ(percent_decode("a%2Fb%2f"), "a/b/");
  EXPECT_EQ(percent_decode("100%"), "100%");
  EXPECT_EQ(percent_decode("%zz%4"), "%zz%4");
}

TEST(Shown, IsCutBetweenCharactersAndHasNoControls) {
  EXPECT_EQ(shown("abc", 3), "abc");
  EXPECT_EQ(shown("abcd", 3), "abc...");
  EXPECT_EQ(shown("aéé", 4), "aé...");
  EXPECT_EQ(shown("a\n\x7f\x01z", 10), "a   z");
  EXPECT_EQ(shown("\xff\xc3", 100), "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(PathOf, DropsTheQuery) {
  EXPECT_EQ(path_of("/health?x=1"), "/health");
  EXPECT_EQ(path_of("/health"), "/health");
}

}  // namespace
}  // namespace tandem::server
