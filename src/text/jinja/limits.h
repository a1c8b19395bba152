#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::text::jinja {

// What one rendering may use. Reaching a bound ends it with an error that names the bound; a chat
// template that renders ordinary conversations stays orders of magnitude below each.
struct Limits {
  // Statements, loop rounds and expressions evaluated, plus one for each 256 bytes of value made. A step
  // is some 20 to 50 ns.
  std::uint64_t max_steps = 2'000'000;
  // Strings and lists made on the way, all together, also those that are gone again.
  std::size_t max_value_bytes = std::size_t{256} << 20;
  std::size_t max_output_bytes = std::size_t{32} << 20;
  // Nested evaluations, macro calls included. One needs at most about 1 KiB of stack.
  std::uint32_t max_depth = 1200;
};

}  // namespace tandem::text::jinja
