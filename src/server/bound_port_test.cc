#include "server/bound_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::server {
namespace {

using ::testing::HasSubstr;

TEST(BoundPort, APortThatSomebodyListensOnIsRefusedWithItsName) {
  auto first = BoundPort::bind("127.0.0.1", 0);
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_GT(first->port(), 0);
  const std::uint16_t port = first->port();
  const int socket = first->release();
  ASSERT_EQ(::listen(socket, 1), 0);
  const auto second = BoundPort::bind("127.0.0.1", port);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("127.0.0.1 port " + std::to_string(port) + ": Address already in use"));
  EXPECT_TRUE(BoundPort::check("127.0.0.1", port));  // as an address it is right
  ::close(socket);
}

TEST(BoundPort, AnObjectThatGoesGivesThePortBack) {
  std::uint16_t port = 0;
  {
    const auto held = BoundPort::bind("127.0.0.1", 0);
    ASSERT_TRUE(held);
    port = held->port();
  }
  EXPECT_TRUE(BoundPort::bind("127.0.0.1", port));
}

TEST(BoundPort, NamesThatMeanNoAddressAreRefused) {
  for (const char* host : {"", "no.such.host.invalid", "256.1.1.1"}) {
    EXPECT_FALSE(BoundPort::check(host, 8000)) << host;
    EXPECT_FALSE(BoundPort::bind(host, 8000)) << host;
  }
}

TEST(BoundPort, UrlsOfIpv6AddressesHaveBrackets) {
  EXPECT_EQ(url_of("127.0.0.1", 8000), "http://127.0.0.1:8000");
  EXPECT_EQ(url_of("gpu-host", 80), "http://gpu-host:80");
  EXPECT_EQ(url_of("::1", 8000), "http://[::1]:8000");
}

}  // namespace
}  // namespace tandem::server
