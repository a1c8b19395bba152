#include "server/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::server {
namespace {

Router example() {
  Router router;
  const auto saying = [](std::string text) { return [text](const Request&) { return Answer{.response = {.body = text}, .stream = nullptr}; }; };
  router.add("GET", "/", saying("root"));
  router.add("GET", "/models", saying("list"));
  router.add("GET", "/models/", saying("one"));
  router.add("POST", "/models", saying("make"));
  return router;
}

std::string body(const Router& router, std::string method, std::string target) {
  const Request request{.method = std::move(method), .target = std::move(target)};
  const Router::Found found = router.find(request);
  return found.handler != nullptr ? (*found.handler)(request).response.body : std::to_string(found.refusal.status);
}

TEST(Router, ExactPathsWinOverPrefixes) {
  const Router router = example();
  EXPECT_EQ(body(router, "GET", "/models"), "list");
  EXPECT_EQ(body(router, "GET", "/models/a/b"), "one");
  EXPECT_EQ(body(router, "POST", "/models"), "make");
  EXPECT_EQ(body(router, "GET", "/"), "root");
  EXPECT_EQ(body(router, "GET", "/models?x"), "list");
}

TEST(Router, HeadIsGet) { EXPECT_EQ(body(example(), "HEAD", "/models"), "list"); }

TEST(Router, UnknownPathsAre404AndTheirLabelIsBounded) {
  const Router router = example();
  for (const char* path : {"/x", "/models/", "", "models", "//"}) EXPECT_EQ(body(router, "GET", path), "404") << path;
  EXPECT_EQ(router.find({.method = "GET", .target = "/x/1"}).route, "other");
}

TEST(Router, OtherMethodsAre405WithAllow) {
  const auto found = example().find({.method = "PUT", .target = "/models"});
  EXPECT_EQ(found.refusal.status, 405);
  EXPECT_THAT(found.refusal.headers, ::testing::Contains(std::pair<std::string, std::string>("Allow", "GET, HEAD, POST")));
  EXPECT_EQ(example().find({.method = "get", .target = "/models"}).refusal.status, 405);
}

}  // namespace
}  // namespace tandem::server
