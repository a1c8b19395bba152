#include "text/tokenizer_lines.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>
#include <string>
#include <vector>

#include "base/json_writer.h"

namespace tandem::text {
namespace {

namespace json = boost::json;

Result<std::vector<TokenId>> read_ids(const json::value& value) {
  const json::array* list = value.if_array();
  if (list == nullptr) return fail(ErrorKind::Invalid, "ids must be a list of numbers");
  std::vector<TokenId> ids;
  for (const json::value& item : *list) {
    const std::int64_t* id = item.if_int64();
    if (id == nullptr || *id < 0 || *id > std::numeric_limits<TokenId>::max())
      return fail(ErrorKind::Invalid, "ids must be a list of numbers from 0 on");
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

Result<SpecialTokens> read_special_tokens(const json::object& request) {
  const json::value* value = request.if_contains("special_tokens");
  if (value == nullptr) return SpecialTokens::Parse;
  const json::string* name = value->if_string();
  if (name != nullptr && *name == "parse") return SpecialTokens::Parse;
  if (name != nullptr && *name == "text") return SpecialTokens::AsText;
  return fail(ErrorKind::Invalid, R"(special_tokens must be "parse" or "text")");
}

Result<std::string> answer(const Tokenizer& tokenizer, std::string_view line) {
  boost::system::error_code error;
  const json::value parsed = json::parse(line, error);
  const json::object* request = error ? nullptr : parsed.if_object();
  if (request == nullptr) return fail(ErrorKind::Invalid, R"(not a JSON object; expected {"text": ...} or {"ids": [...]})");

  const json::value* skip_value = request->if_contains("skip_special_tokens");
  const bool skip = skip_value != nullptr && skip_value->is_bool() && skip_value->get_bool();
  JsonWriter out;
  out.begin_object();
  std::vector<TokenId> ids;
  if (const json::value* text = request->if_contains("text")) {
    if (!text->is_string()) return fail(ErrorKind::Invalid, "text must be a string");
    TANDEM_ASSIGN(const SpecialTokens special_tokens, read_special_tokens(*request));
    ids = tokenizer.encode(text->get_string(), special_tokens);
    out.key("ids").begin_array();
    for (const TokenId id : ids) out.number(id);
    out.end_array();
  } else if (const json::value* list = request->if_contains("ids")) {
    TANDEM_ASSIGN(ids, read_ids(*list));
  } else {
    return fail(ErrorKind::Invalid, R"(expected "text" or "ids")");
  }
  out.member("text", tokenizer.decode(ids, skip)).end_object();
  return out.take();
}

}  // namespace

Result<void> tokenize_lines(const Tokenizer& tokenizer, std::istream& in, std::ostream& out) {
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto text = answer(tokenizer, line);
    if (!text) return fail(text.error().kind, fmt::format("line {}: {}", number, text.error().message));
    out << *text << '\n';
  }
  return {};
}

}  // namespace tandem::text
