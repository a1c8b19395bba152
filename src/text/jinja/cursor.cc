// Iteration, lengths and membership.

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::Range:
    case Kind::View:
    case Kind::Generator:
      return true;
    default:
      return false;
  }
}

std::int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
      return 0;
    case Kind::String:
      Meter::pay(value.as_string().size() / 64);
      return static_cast<std::int64_t>(length(value.as_string()));
    case Kind::List:
    case Kind::Tuple:
      return static_cast<std::int64_t>(value.items().size());
    case Kind::Dict:
      return static_cast<std::int64_t>(value.as<Dict>().entries.size());
    case Kind::View:
      return static_cast<std::int64_t>(value.as<View>().dict.as<Dict>().entries.size());
    case Kind::Range:
      return value.as<Range>().size();
    case Kind::Loop:
      return value.as<Loop>().length();
    default:
      return -1;
  }
}

Cursor::Cursor(Value source) : source_(std::move(source)) {
  if (!is_iterable(source_)) fail_runtime("'" + std::string(type_name(source_)) + "' object is not iterable");
}

bool Cursor::next(Value& item) {
  switch (source_.kind()) {
    case Kind::String: {
      const std::string& text = source_.as_string();
      if (at_ >= text.size()) return false;
      const std::size_t start = at_;
      (void)next_code_point(text, at_);
      item = Value::string(text.substr(start, at_ - start));
      return true;
    }
    case Kind::List:
    case Kind::Tuple:
      if (at_ >= source_.items().size()) return false;
      item = source_.items()[at_++];
      return true;
    case Kind::Dict:
      if (at_ >= source_.as<Dict>().entries.size()) return false;
      item = source_.as<Dict>().entries[at_++].first;
      return true;
    case Kind::View: {
      const View& view = source_.as<View>();
      const auto& entries = view.dict.as<Dict>().entries;
      if (at_ >= entries.size()) return false;
      const auto& [key, value] = entries[at_++];
      switch (view.what) {
        case ViewKind::Keys:
          item = key;
          break;
        case ViewKind::Values:
          item = value;
          break;
        case ViewKind::Items:
          item = Value::tuple({key, value});
          break;
      }
      return true;
    }
    case Kind::Range: {
      const Range& range = source_.as<Range>();
      const std::int64_t value = range.at(static_cast<std::int64_t>(at_));
      if (range.step > 0 ? value >= range.stop : value <= range.stop) return false;
      ++at_;
      item = Value::integer(value);
      return true;
    }
    case Kind::Generator: {
      Generator& generator = source_.as<Generator>();
      if (generator.next < generator.values.size()) {
        item = std::move(generator.values[generator.next++]);
        return true;
      }
      if (generator.error) {
        // Raised once; a generator that has raised is at its end.
        const Failure failure = std::move(*generator.error);
        generator.error.reset();
        throw failure;
      }
      return false;
    }
    default:
      return false;
  }
}

std::vector<Value> to_items(Context& context, const Value& iterable) {
  Cursor cursor(iterable);
  std::vector<Value> out;
  Value item;
  while (cursor.next(item)) {
    context.step();
    context.spend_items(1);
    out.push_back(std::move(item));
  }
  return out;
}

bool contains(Context& context, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::String:
      if (!item.is_string())
        fail_runtime(item.is_undefined() ? item.why_undefined()
                                         : "'in <string>' requires string as left operand, not " +
                                               std::string(type_name(item)));
      context.step(container.as_string().size() / 64);
      return container.as_string().find(item.as_string()) != std::string::npos;
    case Kind::Dict:
      return container.as<Dict>().find(item) != nullptr;
    case Kind::View:
      if (container.as<View>().what == ViewKind::Keys)
        return container.as<View>().dict.as<Dict>().find(item) != nullptr;
      break;
    case Kind::Range:
      if (item.is_integer()) {
        const Range& range = container.as<Range>();
        const std::int64_t i = item.as_int();
        const bool inside =
            range.step > 0 ? i >= range.start && i < range.stop : i <= range.start && i > range.stop;
        return inside && (i - range.start) % range.step == 0;
      }
      break;
    default:
      break;
  }
  if (!is_iterable(container))
    fail_runtime("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  Cursor cursor(container);
  Value candidate;
  while (cursor.next(candidate)) {
    context.step();
    if (equal(candidate, item)) return true;
  }
  return false;
}

}  // namespace tandem::text::jinja
