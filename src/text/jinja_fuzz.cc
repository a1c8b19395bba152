// Reads the input as a template, renders it with a few values under small limits, and
// checks that what comes out is UTF-8 (so that no step cuts a character) and that errors name a place.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/jinja/template.h"
#include "text/jinja/unicode.h"
#include "text/json_value.h"

namespace {

using namespace tandem::text;

const jinja::Variables& variables() {
  static const jinja::Variables all = [] {
    const auto json = parse_json(
        R"({"s": "Hello, Wörld 👋", "i": 7, "f": -0.5, "b": true, "z": null, "big": 123456789012345678901234567890,
            "t": "  a b  c\n", "e": "", "n": -3, "w": ["b", "A", "c", "a"], "mixed": [1, "1", 1.0, null, true, [1], {"a": 1}],
            "rows": [{"name": "x", "age": 3, "tag": "p"}, {"name": "Y", "age": 1, "tag": "q"}, {"name": "w"}],
            "l": [3, 1, 2], "m": {"k": "v", "n": {"d": [null, 1.0]}},
            "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<think>a</think>b",
                          "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}]})");
    jinja::Variables out;
    for (const auto& [name, value] : json->as<jinja::Dict>().entries)
      out.emplace_back(name.as_string(), value);
    return out;
  }();
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  (void)parse_json(source);
  const auto parsed = jinja::Template::parse(source);
  if (!parsed) {
    if (!parsed.error().message.starts_with("line ")) std::abort();
    return 0;
  }
  jinja::RenderOptions options;
  options.limits = {
      .max_steps = 20000, .max_value_bytes = 1 << 22, .max_output_bytes = 1 << 20, .max_depth = 200};
  const auto rendered = parsed->render(variables(), options);
  if (!jinja::is_valid_utf8(rendered ? *rendered : rendered.error().message)) std::abort();
  return 0;
}
