#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::server::testing {

// The JSON of each `data:` event; "[DONE]" as a string.
inline std::vector<boost::json::value> events_of(std::string_view stream) {
  std::vector<boost::json::value> out;
  while (!stream.empty()) {
    const auto end = stream.find("\n\n");
    std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end == std::string_view::npos ? stream.size() : end + 2);
    event.remove_prefix(std::string_view("data: ").size());
    if (event == "[DONE]") {
      out.emplace_back("[DONE]");
    } else {
      out.push_back(boost::json::parse({event.data(), event.size()}));
    }
  }
  return out;
}

}  // namespace tandem::server::testing
