// The `loop` variable.

#include "text/jinja/callable.h"
#include "text/jinja/context.h"

namespace tandem::text::jinja {

bool Loop::next(Value& item) {
  if (next_buffered_ < buffered_.size()) {
    item = std::move(buffered_[next_buffered_++]);
    return true;
  }
  return !read_all_ && pull && pull(item);
}

bool Loop::peek() {
  if (!after.is_missing()) return true;
  Value item;
  if (!next(item)) return false;
  after = std::move(item);
  return true;
}

bool Loop::advance(Value& item) {
  if (!after.is_missing()) {
    item = std::exchange(after, Value());
  } else if (!next(item)) {
    return false;
  }
  ++index0;
  before = std::exchange(current, item);
  return true;
}

std::int64_t Loop::length() {
  if (known_length >= 0) return known_length;
  std::vector<Value> rest;
  Value item;
  while (next(item)) {
    Meter::pay();
    rest.push_back(std::move(item));
  }
  buffered_ = std::move(rest);
  next_buffered_ = 0;
  read_all_ = true;
  known_length = static_cast<std::int64_t>(buffered_.size()) + index0 + 1 + (after.is_missing() ? 0 : 1);
  return known_length;
}

Value Loop::attribute(std::string_view name) {
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0);
  if (name == "revindex0") return Value::integer(length() - index0 - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem") return index0 == 0 ? Value::undefined("there is no previous item") : before;
  if (name == "nextitem") return peek() ? after : Value::undefined("there is no next item");
  return {};
}

}  // namespace tandem::text::jinja
