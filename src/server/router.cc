#include "server/router.h"

#include <fmt/format.h>

#include "server/api_error.h"

namespace tandem::server {

void Router::add(std::string method, std::string path, Handler handler) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler)});
}

Router::Found Router::find(const Request& request) const {
  const std::string_view path = path_of(request.target);
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  std::string_view known;  // the path as registered
  std::string allow;
  for (const bool exact : {true, false}) {
    for (const Route& route : routes_) {
      const bool prefix = route.path.size() > 1 && route.path.back() == '/';
      if (exact == prefix) continue;
      const bool matches = exact ? path == route.path : path.starts_with(route.path) && path.size() > route.path.size();
      if (!matches) continue;
      known = route.path;
      if (route.method == method) return {&route.handler, {}, known};
      allow += (allow.empty() ? "" : ", ") + route.method + (route.method == "GET" ? ", HEAD" : "");
    }
    if (!known.empty()) break;
  }
  Found found;
  if (known.empty()) {
    found.route = "other";
    found.refusal = error_response({404, fmt::format("There is nothing at {}. docs/api.md lists the paths.", shown(path, 100)),
                                    "invalid_request_error", "", "not_found"});
  } else {
    found.route = known;
    found.refusal = error_response({405, fmt::format("{} does not take {}; it takes {}.", known, shown(request.method, 20), allow),
                                    "invalid_request_error", "", "method_not_allowed"});
    found.refusal.headers.emplace_back("Allow", allow);
  }
  return found;
}

}  // namespace tandem::server
