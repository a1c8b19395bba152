#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "server/response_stream.h"

namespace tandem::server {

// Finds the handler of a request. HEAD is served by GET's handler (the connection drops the body);
// a path of another method is 405 with Allow, an unknown path 404.
//
// Immutable once filled: any thread may route.
class Router {
 public:
  using Handler = std::function<Answer(const Request&)>;

  // `path` is exact, or a prefix if it ends in '/'. Exact ones win.
  void add(std::string method, std::string path, Handler handler);

  struct Found {
    const Handler* handler = nullptr;  // null: `refusal` is the answer
    Response refusal;
    std::string_view route;  // the registered path, "other" if none: a label of bounded variety
  };
  [[nodiscard]] Found find(const Request& request) const;

 private:
  struct Route {
    std::string method, path;
    Handler handler;
  };
  std::vector<Route> routes_;
};

}  // namespace tandem::server
