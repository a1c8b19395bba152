#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace tandem::text::jinja {

class Context;
struct Activation;
struct MacroBody;

// What a call, a filter or a test was given, after * and ** were unpacked.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Sorts arguments into the parameters of a native function, as Python's call would: a parameter that
// was not given is Missing. Runtime failure for too many, unknown and doubly given ones, and if one of
// the first `required` is missing.
[[nodiscard]] std::vector<Value> bind_arguments(std::string_view function, Arguments& arguments,
                                                std::initializer_list<std::string_view> parameters,
                                                std::size_t required);

using NativeFunction = Value (*)(Context&, Arguments&);
struct Function : Object {
  Function(std::string_view n, NativeFunction f) : name(n), call(f) {}
  std::string_view name;
  NativeFunction call;
};

using NativeMethod = Value (*)(Context&, const Value& self, Arguments&);
struct Method : Object {
  Value self;
  std::string_view name;
  NativeMethod call = nullptr;  // nullptr: Python has it, we do not
};

// The activation lives as long as the rendering.
struct Macro : Object {
  std::string name;
  const MacroBody* body = nullptr;
  Activation* outer = nullptr;
};

// The `loop` of a for statement. Emptied when its loop ends, so that loops kept in a namespace cannot
// form a chain.
struct Loop : Object {
  std::function<bool(Value&)> pull;  // the next item, after the loop's filter
  std::int64_t known_length = -1;    // -1: must be counted
  std::int64_t index0 = -1;
  Value before, current, after;  // after: Missing until looked at
  Value last_changed;

  bool peek();  // is there an item after the current one?
  bool advance(Value& item);
  [[nodiscard]] std::int64_t length();
  [[nodiscard]] Value attribute(std::string_view name);  // Missing: no such attribute

 private:
  std::vector<Value> buffered_;  // read ahead to count
  std::size_t next_buffered_ = 0;
  bool read_all_ = false;
  bool next(Value& item);
};

struct Cycler : Object {
  std::vector<Value> items;  // at least one
  std::size_t next = 0;
};

struct Joiner : Object {
  Value separator;
  bool used = false;
};

}  // namespace tandem::text::jinja
