// Filters that make text.

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

template <std::string (*Map)(std::string_view)>
Value mapped(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("filter", given, {}, 0);
  return context.text(Map(text_of(input)), input.is_markup());
}

Value f_trim(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("trim", given, {"chars"}, 0);
  const std::string text = text_of(input);
  if (a[0].is_missing() || a[0].is_none())
    return context.text(std::string(strip_space(text, true, true)), input.is_markup());
  if (!a[0].is_string()) fail_runtime("strip arg must be None or str");
  return context.text(std::string(strip(text, a[0].as_string(), true, true)), input.is_markup());
}

Value f_title(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("title", given, {}, 0);
  const std::string text = text_of(input);
  const auto begins_word = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  std::size_t word = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t start = at;
    const bool ends = at == text.size() || begins_word(next_code_point(text, at));
    if (ends) {
      if (start > word) {
        std::size_t second = word;
        (void)next_code_point(text, second);
        out += to_upper(std::string_view(text).substr(word, second - word));
        out += to_lower(std::string_view(text).substr(second, start - second));
      }
      if (start == text.size()) break;
      out += std::string_view(text).substr(start, at - start);
      word = at;
    }
  }
  return context.text(std::move(out), input.is_markup());
}

Value f_replace(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("replace", given, {"old", "new", "count"}, 2);
  const std::int64_t count = a[2].is_none() ? -1 : whole(a[2], -1);
  return Value::string(replaced(context, text_of(input), text_of(a[0]), text_of(a[1]), count));
}

Value f_center(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("center", given, {"width"}, 0);
  const Value text = Value::string(text_of(input), input.is_markup());
  Arguments method;
  method.positional.push_back(a[0].is_missing() ? Value::integer(80) : a[0]);
  return find_string_method("center")->call(context, text, method);
}

Value f_indent(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("indent", given, {"width", "first", "blank"}, 0);
  if (input.is_undefined()) fail_runtime(input.why_undefined());
  if (!input.is_string())
    fail_runtime("the filter 'indent' needs a string, not " + std::string(type_name(input)));
  std::string indention;
  if (!a[0].is_missing() && a[0].is_string()) {
    indention = a[0].as_string();
  } else {
    const std::int64_t width = std::max<std::int64_t>(whole(a[0], 4), 0);
    context.spend(static_cast<std::size_t>(width));
    indention = std::string(static_cast<std::size_t>(width), ' ');
  }
  const std::string text = input.as_string() + "\n";
  std::string out;
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    context.spend(line.size() + indention.size() + 1);
    if (!is_first) {
      out += '\n';
      if (flag(a[2]) || !line.empty()) out += indention;
    }
    is_first = false;
    out += line;
  }
  if (flag(a[1])) out = indention + out;
  return context.text(std::move(out), input.is_markup());
}

Value f_truncate(Context& context, const Value& input, Arguments& given) {
  const auto a = bind_arguments("truncate", given, {"length", "killwords", "end", "leeway"}, 0);
  const std::int64_t limit = whole(a[0], 255);
  const std::string end = a[2].is_missing() ? "..." : text_of(a[2]);
  const std::int64_t leeway = a[3].is_none() ? 5 : whole(a[3], 5);
  const auto end_length = static_cast<std::int64_t>(length(end));
  if (limit < end_length) fail_runtime("expected length >= " + std::to_string(end_length));
  if (leeway < 0) fail_runtime("expected leeway >= 0");
  // Anything short enough comes back as it is; only text can be cut.
  const std::int64_t size = length_of(input);
  if (size < 0) fail_runtime("object of type '" + std::string(type_name(input)) + "' has no len()");
  if (size <= limit + leeway) return input;
  if (!input.is_string()) fail_runtime("the filter 'truncate' cannot cut a " + std::string(type_name(input)));
  const std::string& text = input.as_string();
  std::string out = text.substr(0, byte_offset(text, static_cast<std::size_t>(limit - end_length)));
  if (!flag(a[1])) {
    const std::size_t blank = out.rfind(' ');
    if (blank != std::string::npos) out.resize(blank);
  }
  return context.text(out + end, input.is_markup());
}

Value f_wordcount(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("wordcount", given, {}, 0);
  const std::string text = text_of(input);
  context.step(text.size() / 16);
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_word = c == '_' || is_alpha(c) || is_numeric(c) || is_digit(c);
    words += is_word && !in_word;
    in_word = is_word;
  }
  return Value::integer(words);
}

Value f_escape(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("escape", given, {}, 0);
  if (input.is_markup()) return input;
  return context.text(html_escaped(text_of(input)), true);
}
Value f_forceescape(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("forceescape", given, {}, 0);
  return context.text(html_escaped(text_of(input)), true);
}
Value f_safe(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("safe", given, {}, 0);
  return context.text(text_of(input), true);
}

Value f_format(Context& context, const Value& input, Arguments& given) {
  if (!given.positional.empty() && !given.named.empty())
    fail_runtime("can't handle positional and keyword arguments at the same time");
  Value values = Value::tuple(given.positional);
  if (!given.named.empty()) {
    auto named = std::make_shared<Dict>();
    for (auto& [name, value] : given.named) named->set(Value::string(name), value);
    values = make_dict(std::move(named));
  }
  return context.text(percent_format(context, text_of(input), values, input.is_markup()), input.is_markup());
}

std::string quoted_url(std::string_view text, bool for_query) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += '%';
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

Value f_urlencode(Context& context, const Value& input, Arguments& given) {
  (void)bind_arguments("urlencode", given, {}, 0);
  if (input.is_string() || !is_iterable(input)) return context.text(quoted_url(text_of(input), false));
  std::string out;
  const auto add_pair = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    std::string pair = quoted_url(text_of(key), true) + "=" + quoted_url(text_of(value), true);
    context.spend(pair.size());
    out += pair;
  };
  if (input.is(Kind::Dict)) {
    for (const auto& [key, value] : input.as<Dict>().entries) add_pair(key, value);
  } else {
    for (const Value& pair : to_items(context, input)) {
      const std::vector<Value> both = to_items(context, pair);
      if (both.size() != 2) fail_runtime("urlencode needs pairs");
      add_pair(both[0], both[1]);
    }
  }
  return Value::string(std::move(out));
}

}  // namespace

const std::vector<NamedFilter>& text_filters() {
  static const std::vector<NamedFilter> kFilters = {
      {"capitalize", {mapped<capitalize>}},
      {"center", {f_center}},
      {"e", {f_escape}},
      {"escape", {f_escape}},
      {"forceescape", {f_forceescape}},
      {"format", {f_format}},
      {"indent", {f_indent}},
      {"lower", {mapped<to_lower>}},
      {"replace", {f_replace}},
      {"safe", {f_safe}},
      {"title", {f_title}},
      {"trim", {f_trim}},
      {"truncate", {f_truncate}},
      {"upper", {mapped<to_upper>}},
      {"urlencode", {f_urlencode}},
      {"wordcount", {f_wordcount}},
  };
  return kFilters;
}

}  // namespace tandem::text::jinja
