#include "text/jinja/string_predicates.h"

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

template <bool (*Is)(char32_t)>
Value all_are(Context& context, const Value& self, Arguments& given) {
  (void)bind_arguments("str method", given, {}, 0);
  const std::string& s = self.as_string();
  context.step(s.size() / 16);
  for (std::size_t at = 0; at < s.size();)
    if (!Is(next_code_point(s, at))) return Value::boolean(false);
  return Value::boolean(!s.empty());
}
bool is_alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

}  // namespace

Value all_alnum(Context& context, const Value& self, Arguments& given) { return all_are<is_alnum>(context, self, given); }
Value all_alpha(Context& context, const Value& self, Arguments& given) { return all_are<is_alpha>(context, self, given); }
Value all_decimal(Context& context, const Value& self, Arguments& given) { return all_are<is_decimal>(context, self, given); }
Value all_digit(Context& context, const Value& self, Arguments& given) { return all_are<is_digit>(context, self, given); }
Value all_numeric(Context& context, const Value& self, Arguments& given) { return all_are<is_numeric>(context, self, given); }
Value all_space(Context& context, const Value& self, Arguments& given) { return all_are<is_space>(context, self, given); }

Value isprintable(Context& context, const Value& self, Arguments& given) {
  const Value all = all_are<is_printable>(context, self, given);
  return self.as_string().empty() ? Value::boolean(true) : all;
}
Value isascii(Context&, const Value& self, Arguments& given) {
  (void)bind_arguments("isascii", given, {}, 0);
  return Value::boolean(is_ascii(self.as_string()));
}

Value islower(Context& context, const Value& self, Arguments& given) {
  (void)bind_arguments("islower", given, {}, 0);
  bool found = false;
  const std::string& s = self.as_string();
  context.step(s.size() / 16);
  for (std::size_t at = 0; at < s.size();) {
    const char32_t c = next_code_point(s, at);
    if (is_upper(c) || is_title(c)) return Value::boolean(false);
    found |= is_lower(c);
  }
  return Value::boolean(found);
}
Value isupper(Context& context, const Value& self, Arguments& given) {
  (void)bind_arguments("isupper", given, {}, 0);
  bool found = false;
  const std::string& s = self.as_string();
  context.step(s.size() / 16);
  for (std::size_t at = 0; at < s.size();) {
    const char32_t c = next_code_point(s, at);
    if (is_lower(c) || is_title(c)) return Value::boolean(false);
    found |= is_upper(c);
  }
  return Value::boolean(found);
}
Value istitle(Context& context, const Value& self, Arguments& given) {
  (void)bind_arguments("istitle", given, {}, 0);
  bool found = false;
  bool in_word = false;
  const std::string& s = self.as_string();
  context.step(s.size() / 16);
  for (std::size_t at = 0; at < s.size();) {
    const char32_t c = next_code_point(s, at);
    const bool capital = is_upper(c) || is_title(c);
    if (capital && in_word) return Value::boolean(false);
    if (is_lower(c) && !in_word) return Value::boolean(false);
    in_word = capital || is_lower(c);
    found |= in_word;
  }
  return Value::boolean(found);
}

}  // namespace tandem::text::jinja
