#include "text/json_value.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <limits>

#include "text/jinja/number.h"
#include "text/jinja/unicode.h"

namespace tandem::text {
namespace {

using jinja::Failure;
using jinja::Value;

[[noreturn]] void fail_json(std::string message) {
  throw Failure{Failure::Kind::Runtime, std::move(message)};
}

[[noreturn]] void fail_depth() {
  fail_json("the JSON is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
}

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Value document() {
    if (!jinja::is_valid_utf8(text_)) fail("the JSON is not UTF-8");
    Value out = value(0);
    skip_space();
    if (at_ < text_.size()) fail("something follows the JSON value");
    return out;
  }

 private:
  [[noreturn]] void fail(std::string what) const {
    fail_json(what.append(" at byte ").append(std::to_string(at_)));
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  [[nodiscard]] bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool skip(char c) {
    skip_space();
    if (!at(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!skip(c)) fail(std::string("'") + c + "' is missing");
  }

  Value value(int depth) {
    if (depth >= kMaxJsonDepth) fail_depth();
    skip_space();
    if (at_ >= text_.size()) fail("a value is missing");
    switch (text_[at_]) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return Value::string(string());
      case 't':
        return word("true", Value::boolean(true));
      case 'f':
        return word("false", Value::boolean(false));
      case 'n':
        return word("null", Value::none());
      default:
        return number();
    }
  }

  Value word(std::string_view what, Value out) {
    if (!text_.substr(at_).starts_with(what)) fail("an unknown word stands");
    at_ += what.size();
    return out;
  }

  Value array(int depth) {
    ++at_;
    std::vector<Value> items;
    if (skip(']')) return Value::list({});
    do items.push_back(value(depth + 1));
    while (skip(','));
    expect(']');
    return Value::list(std::move(items));
  }

  Value object(int depth) {
    ++at_;
    auto out = std::make_shared<jinja::Dict>();
    if (skip('}')) return jinja::make_dict(std::move(out));
    do {
      skip_space();
      if (!at('"')) fail("the name of a member is missing");
      Value key = Value::string(string());
      expect(':');
      out->set(std::move(key), value(depth + 1));
    } while (skip(','));
    expect('}');
    return jinja::make_dict(std::move(out));
  }

  char32_t hex4() {
    char32_t c = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char d = at_ < text_.size() ? text_[at_] : ' ';
      if (d >= '0' && d <= '9')
        c = c << 4 | static_cast<char32_t>(d - '0');
      else if ((d | 32) >= 'a' && (d | 32) <= 'f')
        c = c << 4 | static_cast<char32_t>((d | 32) - 'a' + 10);
      else
        fail("a \\u escape has too few digits");
    }
    return c;
  }

  std::string string() {
    ++at_;
    std::string out;
    while (true) {
      if (at_ >= text_.size()) fail("a string is not closed");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) fail("a string holds a control character");
      if (c != '\\') {
        out += c;
        continue;
      }
      const char e = at_ < text_.size() ? text_[at_++] : ' ';
      switch (e) {
        case '"':
        case '\\':
        case '/':
          out += e;
          break;
        case 'b':
          out += '\b';
          break;
        case 'f':
          out += '\f';
          break;
        case 'n':
          out += '\n';
          break;
        case 'r':
          out += '\r';
          break;
        case 't':
          out += '\t';
          break;
        case 'u': {
          char32_t code = hex4();
          if (code >= 0xd800 && code < 0xdc00) {
            if (!text_.substr(at_).starts_with("\\u")) fail("half a surrogate pair stands");
            at_ += 2;
            const char32_t low = hex4();
            if (low < 0xdc00 || low > 0xdfff) fail("half a surrogate pair stands");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          } else if (code >= 0xdc00 && code < 0xe000) {
            fail("half a surrogate pair stands");
          }
          jinja::append_code_point(out, code);
          break;
        }
        default:
          fail("an unknown escape stands");
      }
    }
  }

  Value number() {
    const std::size_t begin = at_;
    const auto digits = [&] {
      const std::size_t from = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      if (at_ == from) fail("a digit is missing");
    };
    if (at('-')) ++at_;
    if (at('0')) {
      ++at_;
    } else {
      digits();
    }
    bool is_real = false;
    if (at('.')) {
      is_real = true;
      ++at_;
      digits();
    }
    if (at('e') || at('E')) {
      is_real = true;
      ++at_;
      if (at('+') || at('-')) ++at_;
      digits();
    }
    const std::string_view number = text_.substr(begin, at_ - begin);
    Value out = is_real ? jinja::parse_float(number) : jinja::parse_int(number, 10);
    if (out.is_missing()) fail("a number has too many digits");
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Value converted(const boost::json::value& json, int depth) {
  if (depth >= kMaxJsonDepth) fail_depth();
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::none();
    case boost::json::kind::bool_:
      return Value::boolean(json.get_bool());
    case boost::json::kind::int64:
      return Value::integer(json.get_int64());
    case boost::json::kind::uint64:
      return jinja::from_big(jinja::Big(json.get_uint64()));
    case boost::json::kind::double_:
      return Value::real(json.get_double());
    case boost::json::kind::string:
      return Value::string(std::string(json.get_string().data(), json.get_string().size()));
    case boost::json::kind::array: {
      std::vector<Value> items;
      items.reserve(json.get_array().size());
      for (const auto& item : json.get_array()) items.push_back(converted(item, depth + 1));
      return Value::list(std::move(items));
    }
    case boost::json::kind::object: {
      auto out = std::make_shared<jinja::Dict>();
      for (const auto& member : json.get_object())
        out->set(Value::string(std::string(member.key())), converted(member.value(), depth + 1));
      return jinja::make_dict(std::move(out));
    }
  }
  return Value::none();
}

}  // namespace

Result<jinja::Value> parse_json(std::string_view text) {
  try {
    return JsonReader(text).document();
  } catch (const Failure& failure) {
    return tandem::fail(ErrorKind::Invalid, failure.message);
  }
}

Result<jinja::Value> to_value(const boost::json::value& json) {
  try {
    return converted(json, 0);
  } catch (const Failure& failure) {
    return tandem::fail(ErrorKind::Invalid, failure.message);
  }
}

}  // namespace tandem::text
