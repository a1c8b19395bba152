// json.dumps.

#include <cmath>

#include <algorithm>

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void append_unit(std::string& out, char32_t unit) {
  out += "\\u";
  for (int i = 3; i >= 0; --i) out += kHex[unit >> (4 * i) & 15];
}

class JsonText {
 public:
  JsonText(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

  std::string take() { return std::move(out_); }

  void value(const Value& v) {
    context_.step();
    switch (v.kind()) {
      case Kind::None:
        out_ += "null";
        return;
      case Kind::Bool:
        out_ += v.as_bool() ? "true" : "false";
        return;
      case Kind::Int:
      case Kind::BigInt:
        out_ += int_text(v);
        return;
      case Kind::Float:
        out_ += float_text(v.as_float());
        return;
      case Kind::String:
        string(v.as_string());
        return;
      case Kind::List:
      case Kind::Tuple:
        array(v.items());
        return;
      case Kind::Dict:
        object(v.as<Dict>());
        return;
      default:
        fail_runtime("Object of type " + std::string(type_name(v)) + " is not JSON serializable");
    }
  }

 private:
  static std::string float_text(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return repr_of_float(d);
  }

  void string(std::string_view text) {
    context_.spend(text.size());
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte >= 0x80 || byte == 0x7f) {
        const std::size_t start = at;
        const char32_t c = next_code_point(text, at);
        if (!style_.ascii_only) {
          out_ += text.substr(start, at - start);
        } else if (c < 0x10000) {
          append_unit(out_, c);
        } else {
          append_unit(out_, 0xd800 + ((c - 0x10000) >> 10));
          append_unit(out_, 0xdc00 + ((c - 0x10000) & 0x3ff));
        }
        continue;
      }
      ++at;
      switch (byte) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\f':
          out_ += "\\f";
          break;
        case '\b':
          out_ += "\\b";
          break;
        default:
          if (byte < 0x20) {
            append_unit(out_, byte);
          } else {
            out_ += static_cast<char>(byte);
          }
      }
    }
    out_ += '"';
  }

  void new_line() {
    if (!style_.indent) return;
    context_.spend(style_.indent->size() * static_cast<std::size_t>(level_) + 1);
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void separator(bool& first) {
    if (!first) {
      context_.spend(style_.item_separator.size());
      out_ += style_.item_separator;
    }
    first = false;
    new_line();
  }

  void array(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    bool first = true;
    for (const Value& item : items) {
      separator(first);
      value(item);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::String:
        return key.as_string();
      case Kind::None:
        return "null";
      case Kind::Bool:
        return key.as_bool() ? "true" : "false";
      case Kind::Int:
      case Kind::BigInt:
        return int_text(key);
      case Kind::Float:
        return float_text(key.as_float());
      default:
        fail_runtime("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
    }
  }

  void object(const Dict& dict) {
    if (dict.entries.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return ordered(a->first, Order::Less, b->first); });
    out_ += '{';
    ++level_;
    bool first = true;
    for (const auto* entry : entries) {
      separator(first);
      string(key_text(entry->first));
      context_.spend(style_.key_separator.size());
      out_ += style_.key_separator;
      value(entry->second);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  Context& context_;
  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_json(Context& context, const Value& value, const JsonStyle& style) {
  JsonText text(context, style);
  text.value(value);
  return text.take();
}

}  // namespace tandem::text::jinja
