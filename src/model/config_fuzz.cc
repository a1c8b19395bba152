// Reads an input as config.json. Promises: a geometry that is taken passes its own check, and a refusal names
// the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/geometry.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto geometry = tandem::model::parse_geometry(input, "config.json");
  if (!geometry) {
    if (geometry.error().message.find("config.json") == std::string::npos) std::abort();
    return 0;
  }
  if (!tandem::model::check_geometry(*geometry, "config.json")) std::abort();
  if (geometry->full_layers() + geometry->linear_layers() != geometry->layer_count()) std::abort();
  return 0;
}
