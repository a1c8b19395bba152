#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Writes one JSON document into a string, in the order of the calls. Numbers are written the
// shortest way that reads back the same (std::to_chars); non-finite numbers become null, since JSON
// has no others. Text must be UTF-8; control characters, quote and backslash are escaped.
//
// Thread: one. The caller keeps objects and arrays balanced and gives a key before each value of an
// object; `take` checks the balance.
class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view text);
  JsonWriter& number(std::int64_t value);
  JsonWriter& number(std::uint64_t value);
  JsonWriter& number(int value) { return number(static_cast<std::int64_t>(value)); }
  JsonWriter& number(double value);
  JsonWriter& number(float value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // one complete value, already JSON

  // Shorthands for members of an object.
  JsonWriter& member(std::string_view name, std::string_view text) { return key(name).string(text); }
  JsonWriter& member(std::string_view name, const char* text) { return key(name).string(text); }
  JsonWriter& member(std::string_view name, int value) { return key(name).number(value); }
  JsonWriter& member(std::string_view name, std::int64_t value) { return key(name).number(value); }
  JsonWriter& member(std::string_view name, std::uint64_t value) { return key(name).number(value); }
  JsonWriter& member(std::string_view name, double value) { return key(name).number(value); }
  JsonWriter& member(std::string_view name, float value) { return key(name).number(value); }
  JsonWriter& member(std::string_view name, bool value) { return key(name).boolean(value); }

  // The document; the writer is empty afterwards. Aborts if an object or array is still open.
  [[nodiscard]] std::string take();

 private:
  void separate();

  std::string out_;
  std::vector<bool> has_element_;  // one per open object or array
  bool after_key_ = false;
};

}  // namespace tandem
