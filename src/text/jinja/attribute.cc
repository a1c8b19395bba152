// object.name and object[key] as Jinja's sandbox answers them.

#include <algorithm>
#include <iterator>

#include "text/jinja/operations.h"
#include "text/jinja/registry.h"
#include "text/jinja/unicode.h"

namespace tandem::text::jinja {
namespace {

Value no_attribute(const Value& object, std::string_view name) {
  return Value::undefined("'" + described(object) + "' has no attribute '" + std::string(name) + "'");
}

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined("access to attribute '" + std::string(name) + "' of '" +
                          std::string(type_name(object)) + "' object is unsafe.");
}

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

// What every Python object has, Undefined too.
bool is_object_attribute(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "__class__",   "__delattr__",      "__dir__", "__doc__",  "__eq__",     "__format__",
      "__ge__",      "__getattribute__", "__gt__",  "__hash__", "__init__",   "__le__",
      "__lt__",      "__module__",       "__ne__",  "__new__",  "__reduce__", "__repr__",
      "__setattr__", "__sizeof__",       "__str__", "__len__",  "__iter__",   "__bool__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Value macro_attribute(const Macro& macro, std::string_view name) {
  if (name == "name") return Value::string(macro.name);
  return {};
}

// What getattr(object, name) finds in Python; Missing if nothing.
Value python_attribute(const Value& object, std::string_view name) {
  if (object.is(Kind::Namespace)) {
    const Value* found = object.as<Namespace>().find(name);
    return found != nullptr ? *found : Value();
  }
  if (object.is(Kind::Loop)) {
    Value value = object.as<Loop>().attribute(name);
    if (!value.is_missing()) return value;
  }
  if (object.is_number()) {
    const bool real = object.is(Kind::Float);
    if (name == "real" || (name == "numerator" && !real))
      return object.is(Kind::Bool) ? Value::integer(object.as_int()) : object;
    if (name == "imag") return real ? Value::real(0) : Value::integer(0);
    if (name == "denominator" && !real) return Value::integer(1);
  }
  if (object.is(Kind::Macro)) return macro_attribute(object.as<Macro>(), name);
  if (object.is(Kind::Cycler)) {
    const Cycler& cycler = object.as<Cycler>();
    if (name == "current") return cycler.items[cycler.next];
    if (name == "pos") return Value::integer(static_cast<std::int64_t>(cycler.next));
    if (name == "items") return Value::tuple(cycler.items);
  }
  if (object.is(Kind::Joiner)) {
    if (name == "sep") return object.as<Joiner>().separator;
    if (name == "used") return Value::boolean(object.as<Joiner>().used);
  }
  std::string_view interned;
  if (const NativeMethod* call = find_method(object, name, interned)) {
    if (is_mutator(object, name)) return unsafe(object, name);
    auto method = std::make_shared<Method>();
    method->depth = depth_of(object) + 1;
    method->self = object;
    method->name = interned;
    method->call = *call;
    return Value::object(Kind::Method, std::move(method));
  }
  // Every Python object has some __names__; none of them is for templates.
  if (is_dunder(name)) return unsafe(object, name);
  return {};
}

bool is_hashable(const Value& key) {
  switch (key.kind()) {
    case Kind::List:
    case Kind::Dict:
    case Kind::View:
      return false;
    case Kind::Tuple:
      for (const Value& item : key.items()) {
        Meter::pay();
        if (!is_hashable(item)) return false;
      }
      return true;
    default:
      return true;
  }
}

// object[key] without falling back to attributes; Missing if there is nothing.
Value data_item(const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::Dict: {
      if (!is_hashable(key)) return {};
      const Value* found = object.as<Dict>().find(key);
      return found != nullptr ? *found : Value();
    }
    case Kind::List:
    case Kind::Tuple:
    case Kind::Range:
    case Kind::String: {
      if (!key.is_integer()) return {};
      const std::int64_t size = length_of(object);
      std::int64_t i = key.as_int();
      if (i < 0) i += size;
      if (i < 0 || i >= size) return {};
      if (object.is(Kind::Range)) return Value::integer(object.as<Range>().at(i));
      if (object.is_sequence()) return object.items()[static_cast<std::size_t>(i)];
      const std::string& text = object.as_string();
      std::size_t at = byte_offset(text, static_cast<std::size_t>(i));
      const std::size_t start = at;
      (void)next_code_point(text, at);
      return Value::string(text.substr(start, at - start), object.is_markup());
    }
    default:
      return {};
  }
}

}  // namespace

Value get_attribute(Context&, const Value& object, std::string_view name) {
  if (object.is_undefined()) {
    if (is_object_attribute(name)) return unsafe(object, name);
    fail_runtime(object.why_undefined());
  }
  Value found = python_attribute(object, name);
  if (!found.is_missing()) return found;
  if (object.is(Kind::Dict)) {
    if (const Value* value = object.as<Dict>().find(name)) return *value;
  }
  return no_attribute(object, name);
}

Value get_item(Context&, const Value& object, const Value& key) {
  if (object.is_undefined()) fail_runtime(object.why_undefined());
  Value found = data_item(object, key);
  if (!found.is_missing()) return found;
  if (key.is_string()) {
    found = python_attribute(object, key.as_string());
    if (!found.is_missing()) return found;
    return no_attribute(object, key.as_string());
  }
  std::string key_text;
  append_repr(key_text, key);
  return Value::undefined(described(object) + " has no element " + key_text);
}

}  // namespace tandem::text::jinja
