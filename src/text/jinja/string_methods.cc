// The methods of Python's str.

#include "text/jinja/string_methods.h"

#include <algorithm>

#include "text/jinja/operations.h"
#include "text/jinja/string_predicates.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

const std::string& text_argument(const Value& value, std::string_view method) {
  if (value.is_undefined()) fail_runtime(value.why_undefined());
  if (!value.is_string())
    fail_runtime(std::string(method) + " arg must be str, not " + std::string(type_name(value)));
  return value.as_string();
}

std::int64_t int_argument(const Value& value, std::int64_t fallback) {
  if (value.is_missing()) return fallback;
  if (value.is_undefined()) fail_runtime(value.why_undefined());
  if (!value.is_integer())
    fail_runtime("'" + std::string(type_name(value)) + "' object cannot be interpreted as an integer");
  return value.as_int();
}

Value text(Context& context, const Value& self, std::string made) {
  return context.text(std::move(made), self.is_markup());
}

// Methods that would have to escape their arguments after `safe`.
void refuse_markup(const Value& self, std::string_view method) {
  if (self.is_markup())
    fail_runtime("the method '" + std::string(method) + "' after the filter 'safe' is not supported");
}

// Case.

template <std::string (*Map)(std::string_view)>
Value mapped(Context& context, const Value& self, Arguments& given) {
  (void)bind_arguments("str method", given, {}, 0);
  context.spend(self.as_string().size());
  return text(context, self, Map(self.as_string()));
}

Value strip_method(Context& context, const Value& self, Arguments& given, bool left, bool right) {
  const auto a = bind_arguments("strip", given, {"chars"}, 0);
  const std::string& s = self.as_string();
  const std::string_view out = a[0].is_missing() || a[0].is_none()
                                   ? strip_space(s, left, right)
                                   : strip(s, text_argument(a[0], "strip"), left, right);
  return text(context, self, std::string(out));
}
Value strip_both(Context& c, const Value& s, Arguments& a) { return strip_method(c, s, a, true, true); }
Value strip_left(Context& c, const Value& s, Arguments& a) { return strip_method(c, s, a, true, false); }
Value strip_right(Context& c, const Value& s, Arguments& a) { return strip_method(c, s, a, false, true); }

// The part [start, end) in characters that find, count, startswith and so on look at.
std::string_view part(const std::string& s, const Value& start, const Value& end, std::size_t& before,
                      bool& is_empty_range) {
  before = 0;
  is_empty_range = false;
  if ((start.is_missing() || start.is_none()) && (end.is_missing() || end.is_none())) return s;
  const auto size = static_cast<std::int64_t>(length(s));
  const auto bound = [&](const Value& v, std::int64_t fallback) {
    std::int64_t i = v.is_missing() || v.is_none() ? fallback : int_argument(v, fallback);
    if (i < 0) i = std::max<std::int64_t>(i + size, 0);
    return i;
  };
  const std::int64_t from = bound(start, 0);
  const std::int64_t to = std::min(bound(end, size), size);
  is_empty_range = from > to;
  if (is_empty_range) return {};
  before = static_cast<std::size_t>(from);
  const std::size_t a = byte_offset(s, before);
  const std::size_t b = byte_offset(s, static_cast<std::size_t>(to));
  return std::string_view(s).substr(a, b - a);
}

template <bool AtStart>
Value has_affix(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments(AtStart ? "startswith" : "endswith", given, {"affix", "start", "end"}, 1);
  std::size_t before = 0;
  bool outside = false;
  const std::string_view s = part(self.as_string(), a[1], a[2], before, outside);
  const auto matches = [&](const Value& v) {
    context.step();
    const std::string& affix = text_argument(v, AtStart ? "startswith first" : "endswith first");
    return !outside && (AtStart ? s.starts_with(affix) : s.ends_with(affix));
  };
  if (!a[0].is(Kind::Tuple)) return Value::boolean(matches(a[0]));
  return Value::boolean(std::any_of(a[0].items().begin(), a[0].items().end(), matches));
}

std::int64_t position_of(Context& context, const Value& self, Arguments& given, std::string_view method,
                         bool last) {
  const auto a = bind_arguments(method, given, {"sub", "start", "end"}, 1);
  const std::string& sub = text_argument(a[0], method);
  context.step(self.as_string().size() / 16);
  std::size_t before = 0;
  bool outside = false;
  const std::string_view s = part(self.as_string(), a[1], a[2], before, outside);
  if (outside) return -1;
  const std::size_t found = last ? s.rfind(sub) : s.find(sub);
  if (found == kNoPosition) return -1;
  return static_cast<std::int64_t>(before + length(s.substr(0, found)));
}
Value find(Context& c, const Value& s, Arguments& a) {
  return Value::integer(position_of(c, s, a, "find", false));
}
Value rfind(Context& c, const Value& s, Arguments& a) {
  return Value::integer(position_of(c, s, a, "rfind", true));
}
Value index(Context& c, const Value& s, Arguments& a) {
  const std::int64_t i = position_of(c, s, a, "index", false);
  if (i < 0) fail_runtime("substring not found");
  return Value::integer(i);
}
Value rindex(Context& c, const Value& s, Arguments& a) {
  const std::int64_t i = position_of(c, s, a, "rindex", true);
  if (i < 0) fail_runtime("substring not found");
  return Value::integer(i);
}

Value count(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("count", given, {"sub", "start", "end"}, 1);
  const std::string& sub = text_argument(a[0], "count");
  context.step(self.as_string().size() / 16);
  std::size_t before = 0;
  bool outside = false;
  const std::string_view s = part(self.as_string(), a[1], a[2], before, outside);
  if (outside) return Value::integer(0);
  if (sub.empty()) return Value::integer(static_cast<std::int64_t>(length(s)) + 1);
  std::int64_t n = 0;
  for (std::size_t at = s.find(sub); at != kNoPosition; at = s.find(sub, at + sub.size())) ++n;
  return Value::integer(n);
}

Value replace(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("replace", given, {"old", "new", "count"}, 2);
  std::string to = text_argument(a[1], "replace");
  if (self.is_markup() && !a[1].is_markup()) to = html_escaped(to);
  return Value::string(
      replaced(context, self.as_string(), text_argument(a[0], "replace"), to, int_argument(a[2], -1)),
      self.is_markup());
}

Value join(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("join", given, {"iterable"}, 1);
  std::string out;
  bool first = true;
  std::size_t i = 0;
  for (const Value& item : to_items(context, a[0])) {
    const bool escapes = self.is_markup() && !item.is_markup();
    if (!item.is_string() && !escapes)
      fail_runtime("sequence item " + std::to_string(i) + ": expected str instance, " +
                   std::string(type_name(item)) + " found");
    const std::string piece = escapes ? html_escaped(to_text(item)) : item.as_string();
    context.spend(self.as_string().size() + piece.size());
    if (!first) out += self.as_string();
    first = false;
    out += piece;
    ++i;
  }
  return Value::string(std::move(out), self.is_markup());
}

// Splitting.

Value pieces(Context& context, const Value& self, const std::vector<std::string_view>& parts) {
  context.spend_items(parts.size());
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const std::string_view p : parts) out.push_back(context.text(std::string(p), self.is_markup()));
  return Value::list(std::move(out));
}

std::vector<std::string_view> split_at(std::string_view s, std::string_view separator, std::int64_t limit,
                                       bool from_right) {
  std::vector<std::string_view> out;
  if (from_right) {
    while (limit != 0) {
      const std::size_t at = s.rfind(separator);
      if (at == kNoPosition) break;
      out.push_back(s.substr(at + separator.size()));
      s = s.substr(0, at);
      --limit;
    }
    out.push_back(s);
    std::reverse(out.begin(), out.end());
    return out;
  }
  while (limit != 0) {
    const std::size_t at = s.find(separator);
    if (at == kNoPosition) break;
    out.push_back(s.substr(0, at));
    s.remove_prefix(at + separator.size());
    --limit;
  }
  out.push_back(s);
  return out;
}

std::vector<std::string_view> split_at_space(std::string_view s, std::int64_t limit, bool from_right) {
  std::vector<std::string_view> out;
  while (true) {
    s = strip_space(s, !from_right, from_right);
    if (s.empty()) break;
    if (limit == 0) {
      out.push_back(strip_space(s, !from_right, from_right));
      break;
    }
    if (from_right) {
      std::size_t start = s.size();
      while (start > 0) {
        std::size_t c = start - 1;
        while (c > 0 && (static_cast<unsigned char>(s[c]) & 0xc0) == 0x80) --c;
        std::size_t at = c;
        if (is_space(next_code_point(s, at))) break;
        start = c;
      }
      out.push_back(s.substr(start));
      s = s.substr(0, start);
    } else {
      std::size_t end = 0;
      while (end < s.size()) {
        std::size_t at = end;
        if (is_space(next_code_point(s, at))) break;
        end = at;
      }
      out.push_back(s.substr(0, end));
      s.remove_prefix(end);
    }
    --limit;
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Value split_method(Context& context, const Value& self, Arguments& given, bool from_right) {
  const auto a = bind_arguments("split", given, {"sep", "maxsplit"}, 0);
  const std::int64_t limit = int_argument(a[1], -1);
  context.step(self.as_string().size() / 16);
  if (a[0].is_missing() || a[0].is_none())
    return pieces(context, self, split_at_space(self.as_string(), limit, from_right));
  const std::string& separator = text_argument(a[0], "split");
  if (separator.empty()) fail_runtime("empty separator");
  return pieces(context, self, split_at(self.as_string(), separator, limit, from_right));
}
Value split(Context& c, const Value& s, Arguments& a) { return split_method(c, s, a, false); }
Value rsplit(Context& c, const Value& s, Arguments& a) { return split_method(c, s, a, true); }

Value splitlines(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("splitlines", given, {"keepends"}, 0);
  return pieces(context, self, split_lines(self.as_string(), !a[0].is_missing() && is_true(a[0])));
}

Value partition_method(Context& context, const Value& self, Arguments& given, bool last) {
  const auto a = bind_arguments("partition", given, {"sep"}, 1);
  const std::string& separator = text_argument(a[0], "partition");
  if (separator.empty()) fail_runtime("empty separator");
  const std::string& s = self.as_string();
  context.spend(s.size());
  const std::size_t at = last ? s.rfind(separator) : s.find(separator);
  const auto piece = [&](std::string p) { return Value::string(std::move(p), self.is_markup()); };
  if (at == kNoPosition) {
    if (last) return Value::tuple({piece(""), piece(""), piece(s)});
    return Value::tuple({piece(s), piece(""), piece("")});
  }
  return Value::tuple({piece(s.substr(0, at)), piece(separator), piece(s.substr(at + separator.size()))});
}
Value partition(Context& c, const Value& s, Arguments& a) { return partition_method(c, s, a, false); }
Value rpartition(Context& c, const Value& s, Arguments& a) { return partition_method(c, s, a, true); }

Value removeprefix(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("removeprefix", given, {"prefix"}, 1);
  const std::string& prefix = text_argument(a[0], "removeprefix");
  const std::string& s = self.as_string();
  return text(context, self, s.starts_with(prefix) ? s.substr(prefix.size()) : s);
}
Value removesuffix(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("removesuffix", given, {"suffix"}, 1);
  const std::string& suffix = text_argument(a[0], "removesuffix");
  const std::string& s = self.as_string();
  return text(context, self, s.ends_with(suffix) ? s.substr(0, s.size() - suffix.size()) : s);
}

// Padding.

Value pad(Context& context, const Value& self, Arguments& given, char where) {
  const auto a = bind_arguments("just", given, {"width", "fillchar"}, 1);
  const std::int64_t width = int_argument(a[0], 0);
  const std::string fill = a[1].is_missing() ? " " : text_argument(a[1], "just");
  if (length(fill) != 1 || (self.is_markup() && html_escaped(fill) != fill))
    fail_runtime("The fill character must be exactly one character long");
  const std::string& s = self.as_string();
  const auto size = static_cast<std::int64_t>(length(s));
  if (width <= size) return self;
  const auto missing = static_cast<std::size_t>(width - size);
  context.spend(std::min(missing, std::size_t{1} << 40) * fill.size() + s.size());
  // Python puts the odd one left when the width is odd.
  std::size_t left = where == 'r'   ? missing
                     : where == 'l' ? 0
                                    : missing / 2 + (missing & static_cast<std::size_t>(width) & 1);
  std::string out;
  for (std::size_t i = 0; i < left; ++i) out += fill;
  out += s;
  for (std::size_t i = left; i < missing; ++i) out += fill;
  return Value::string(std::move(out), self.is_markup());
}
Value center(Context& c, const Value& s, Arguments& a) { return pad(c, s, a, 'c'); }
Value ljust(Context& c, const Value& s, Arguments& a) { return pad(c, s, a, 'l'); }
Value rjust(Context& c, const Value& s, Arguments& a) { return pad(c, s, a, 'r'); }

Value zfill(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("zfill", given, {"width"}, 1);
  const std::int64_t width = int_argument(a[0], 0);
  const std::string& s = self.as_string();
  const auto size = static_cast<std::int64_t>(length(s));
  if (width <= size) return self;
  const std::size_t zeros = static_cast<std::size_t>(width - size);
  context.spend(zeros + s.size());
  const std::size_t sign = !s.empty() && (s[0] == '-' || s[0] == '+') ? 1 : 0;
  return Value::string(s.substr(0, sign) + std::string(zeros, '0') + s.substr(sign), self.is_markup());
}

Value expandtabs(Context& context, const Value& self, Arguments& given) {
  const auto a = bind_arguments("expandtabs", given, {"tabsize"}, 0);
  const std::int64_t size = int_argument(a[0], 8);
  std::string out;
  std::int64_t column = 0;
  const std::string& s = self.as_string();
  for (std::size_t at = 0; at < s.size();) {
    const std::size_t start = at;
    const char32_t c = next_code_point(s, at);
    if (c == '\t') {
      const std::int64_t blanks = size > 0 ? size - column % size : 0;
      context.spend(static_cast<std::size_t>(blanks));
      out.append(static_cast<std::size_t>(blanks), ' ');
      column += blanks;
      continue;
    }
    out.append(s, start, at - start);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return text(context, self, std::move(out));
}

Value format(Context& context, const Value& self, Arguments& given) {
  refuse_markup(self, "format");
  return context.text(brace_format(context, self.as_string(), given));
}

constexpr NamedMethod kMethods[] = {
    {"capitalize", mapped<capitalize>},
    {"casefold", nullptr},
    {"center", center},
    {"count", count},
    {"encode", nullptr},
    {"endswith", has_affix<false>},
    {"expandtabs", expandtabs},
    {"find", find},
    {"format", format},
    {"format_map", nullptr},
    {"index", index},
    {"isalnum", all_alnum},
    {"isalpha", all_alpha},
    {"isascii", isascii},
    {"isdecimal", all_decimal},
    {"isdigit", all_digit},
    {"isidentifier", nullptr},
    {"islower", islower},
    {"isnumeric", all_numeric},
    {"isprintable", isprintable},
    {"isspace", all_space},
    {"istitle", istitle},
    {"isupper", isupper},
    {"join", join},
    {"ljust", ljust},
    {"lower", mapped<to_lower>},
    {"lstrip", strip_left},
    {"maketrans", nullptr},
    {"partition", partition},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace},
    {"rfind", rfind},
    {"rindex", rindex},
    {"rjust", rjust},
    {"rpartition", rpartition},
    {"rsplit", rsplit},
    {"rstrip", strip_right},
    {"split", split},
    {"splitlines", splitlines},
    {"startswith", has_affix<true>},
    {"strip", strip_both},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<to_title>},
    {"translate", nullptr},
    {"upper", mapped<to_upper>},
    {"zfill", zfill},
};

}  // namespace

const NamedMethod* find_string_method(std::string_view name) {
  const auto* found = std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                                       [](const NamedMethod& m, std::string_view n) { return m.name < n; });
  return found != std::end(kMethods) && found->name == name ? found : nullptr;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  std::size_t line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    const bool breaks =
        (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    out.push_back(text.substr(line, (keep_ends ? at : end) - line));
    line = at;
  }
  if (line < text.size()) out.push_back(text.substr(line));
  return out;
}

std::string replaced(Context& context, std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t count) {
  std::string out;
  if (from.empty()) {  // between all characters
    std::size_t at = 0;
    while (count != 0) {
      context.spend(to.size() + 1);
      out += to;
      --count;
      if (at >= text.size()) return out;
      const std::size_t start = at;
      (void)next_code_point(text, at);
      out += text.substr(start, at - start);
    }
    return out += text.substr(at);
  }
  while (count != 0) {
    const std::size_t at = text.find(from);
    if (at == kNoPosition) break;
    context.spend(at + to.size() + 1);
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    --count;
  }
  context.spend(text.size());
  return out += text;
}

}  // namespace tandem::text::jinja
