// Reads an input as a model's answer: its reasoning, its content and its tool calls. The first byte chooses how the
// answer begins, the second how long its pieces are. Promises: cut or whole, the same comes out; no text is made up; the arguments
// of every call that ended are a JSON object.

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/reasoning.h"
#include "text/tool_call_parser.h"
#include "text/utf8.h"

namespace {

using namespace tandem::text;

struct Answer {
  std::string reasoning, content;
  std::vector<std::string> names, arguments;
  bool unfinished = false;
  friend bool operator==(const Answer&, const Answer&) = default;
};

const boost::json::array& tools() {
  static const boost::json::value all = boost::json::parse(R"([
    {"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},
    {"type":"function","function":{"name":"all","parameters":{"type":"object","properties":{
        "i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},"o":{"type":"object"},"a":{"type":"array"},
        "s":{"type":["string","null"]},"e":{"enum":["x",1]},"u":{"anyOf":[{"type":"integer"},{"type":"string"}]},"free":{}}}}},
    {"type":"function","function":{"name":"now"}}])");
  return all.get_array();
}

// In pieces of `bytes`.
Answer read(std::string_view text, ReasoningSplitter::Options options, std::size_t bytes) {
  ReasoningSplitter splitter(options);
  ToolCallParser parser(tools());
  Answer answer;
  const auto add_calls = [&](const ToolCallParser::Piece& piece) {
    answer.content += piece.text;
    for (const auto& call : piece.calls) {
      const auto index = static_cast<std::size_t>(call.index);
      if (call.name.empty() != (index < answer.names.size()) || index > answer.names.size()) std::abort();
      if (!call.name.empty()) {
        answer.names.push_back(call.name);
        answer.arguments.emplace_back();
      }
      answer.arguments[index] += call.arguments;
    }
  };
  const auto add = [&](const ReasoningSplitter::Piece& piece) {
    answer.reasoning += piece.reasoning;
    if (!piece.content.empty()) add_calls(parser.push(piece.content));
  };
  for (std::size_t at = 0; at < text.size(); at += bytes) add(splitter.push(text.substr(at, bytes)));
  add(splitter.finish());
  add_calls(parser.finish());
  answer.unfinished = parser.unfinished_call();
  if (splitter.held_bytes() != 0 || parser.calls() != static_cast<int>(answer.names.size())) std::abort();
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const ReasoningSplitter::Options options{.inside = (data[0] & 1) != 0, .tool_calls_end_reasoning = (data[0] & 2) != 0};
  const std::string text = to_utf8({reinterpret_cast<const char*>(data) + 2, size - 2});
  const Answer whole = read(text, options, text.size() + 1);
  if (!(read(text, options, 1) == whole) || !(read(text, options, data[1] % 32 + 2u) == whole)) std::abort();
  if (whole.reasoning.size() + whole.content.size() > text.size()) std::abort();
  if (!is_utf8(whole.reasoning) || !is_utf8(whole.content)) std::abort();

  boost::json::parse_options deep;
  deep.max_depth = 1 << 16;
  for (std::size_t i = 0; i + (whole.unfinished ? 1 : 0) < whole.arguments.size(); ++i) {
    boost::json::error_code error;
    const auto value = boost::json::parse(whole.arguments[i], error, {}, deep);
    if (error || !value.is_object()) std::abort();
  }
  return 0;
}
